"""Put together what a rank computes with on a GPU."""

from __future__ import annotations

from dataclasses import replace

import torch

from panel.server.cuda.forward import KernelForward
from panel.server.cuda.head import KernelHead
from panel.server.cuda.layout import Paper
from panel.server.cuda.sampler import KernelSampler
from panel.server.cuda.stack import Stack, served
from panel.server.draft.forward import EagleForward
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
    paper = _paper(place)
    alone = isinstance(forward.reduction, Alone)
    sampler = KernelSampler.into(stack.sampled) if alone else None
    return KernelForward(stack, paper), sampler


def with_kernel_head(
    place: Place, forward: EagleForward, aux: torch.Tensor, sampler: KernelSampler | None
) -> tuple[EagleForward, KernelSampler | None]:
    """Return the same steps with cycles by kernels, and what samples them on the device.

    `aux` is where the model leaves what the tapped layers put out.
    """
    head = KernelHead.of(
        forward.draft,
        forward.cache,
        forward.features,
        aux,
        forward.places,
        _paper(place),
        sequences=place.options.max_running_requests,
    )
    if sampler is not None:
        sampler = replace(sampler, drafts=head.drafts)
    return replace(forward, kernels=head), sampler


def _paper(place: Place) -> Paper:
    options = place.options
    width = 1 + draft_tokens(options)
    return Paper(options.page_size, max_context(options, place.config), width)
