"""Put together what a rank computes with on a GPU."""

from __future__ import annotations

from panel.server.cuda.forward import KernelForward
from panel.server.cuda.layout import Paper
from panel.server.cuda.sampler import KernelSampler
from panel.server.cuda.stack import Stack, served
from panel.server.forward import TorchForward
from panel.server.place import Place
from panel.server.reduction import Alone
from panel.server.sizes import draft_tokens, max_context, step_rows


def with_kernels(
    place: Place, forward: TorchForward
) -> tuple[KernelForward, KernelSampler | None] | None:
    """Return the same computation by kernels, and what samples on the device.

    None where a part of the model or of its split has no kernels. Where several ranks hold the
    logits, the host samples.
    """
    if forward.owner is not None or not served(forward.model):
        return None
    options, rows = place.options, step_rows(place.options)
    stack = Stack.of(
        forward.model,
        place.config,
        forward.cache,
        forward.reduction,
        options.page_size,
        rows=rows,
    )
    width = 1 + draft_tokens(options)
    paper = Paper(options.page_size, max_context(options, place.config), width)
    alone = isinstance(forward.reduction, Alone)
    sampler = KernelSampler.into(stack.sampled) if alone else None
    return KernelForward(stack, paper), sampler
