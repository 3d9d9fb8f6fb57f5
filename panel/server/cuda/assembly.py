"""Put together what a rank computes with on a GPU."""

from __future__ import annotations

from dataclasses import replace

import torch

from panel.server.cuda.ahead import AheadSampler
from panel.server.cuda.forward import KernelForward
from panel.server.cuda.head import KernelHead
from panel.server.cuda.layout import Paper
from panel.server.cuda.plans import tuned_plans
from panel.server.cuda.sampler import KernelSampler
from panel.server.cuda.spread import ByColumns, ByRows, Spread
from panel.server.cuda.stack import Stack, served
from panel.server.cuda.target import KernelTarget
from panel.server.draft.forward import EagleForward
from panel.server.flight import DeviceSampler
from panel.server.forward import TorchForward
from panel.server.place import Place
from panel.server.sizes import draft_tokens, max_context, simulated_rate, step_rows


def with_kernels(place: Place, forward: TorchForward) -> tuple[KernelForward, KernelSampler] | None:
    """Return the same computation by kernels, and what samples on the device.

    None where a part of the model or of its split has no kernels.
    """
    if not served(forward.model):
        return None
    options, rows = place.options, step_rows(place.options)
    stack = Stack.of(
        forward.model,
        place.config,
        forward.cache,
        forward.reduction,
        options.page_size,
        rows=rows,
        plans=tuned_plans(place, forward.model),
    )
    kernels = KernelForward(stack, _paper(place), forward.owner)
    return kernels, KernelSampler.into(stack.sampled, _spread(place))


def _spread(place: Place) -> Spread | None:
    shard = place.shard
    if shard.tp_size == 1:
        return None
    if shard.dp_attention:
        return ByRows(shard.rank, shard.tp_size)
    return ByColumns(shard.rank, shard.tp_size, place.config.vocab_size)


def with_kernel_head(
    place: Place, forward: EagleForward, aux: torch.Tensor, sampler: KernelSampler | None
) -> tuple[EagleForward, DeviceSampler | None]:
    """Return the same steps with cycles by kernels, and what samples them on the device.

    `aux` is where the model leaves what the tapped layers put out. Where no other rank waits for
    the drafts, the head goes on as soon as there are tokens.
    """
    head = KernelHead.of(
        forward.draft,
        forward.cache,
        forward.features,
        aux,
        forward.places,
        _paper(place),
        sequences=place.options.max_running_requests,
        target=forward.target if isinstance(forward.target, KernelTarget) else None,
        rate=simulated_rate(place.options),
    )
    forward = replace(forward, kernels=head)
    if sampler is None:
        return forward, None
    sampler = replace(sampler, drafts=head.drafts)
    return forward, sampler if place.shard.tp_size > 1 else AheadSampler(sampler, head)


def _paper(place: Place) -> Paper:
    options = place.options
    width = 1 + draft_tokens(options)
    return Paper(options.page_size, max_context(options, place.config), width)
