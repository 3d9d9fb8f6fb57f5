"""Load one rank's part of a feed-forward part.

Weights are kept as [input, output]; projections of the same input are one matrix.
"""

from __future__ import annotations

import torch

from panel.server.dispatch import ExpertsDispatched
from panel.server.exchange import Exchange
from panel.server.experts import (
    TOGETHER_LIMIT,
    Dense,
    ExpertsApart,
    ExpertsTogether,
    FeedForward,
    RoutedExperts,
    SharedExperts,
)
from panel.server.loading import Gated, Loading
from panel.server.norm import RMSNorm
from panel.server.placement import Placement
from panel.server.routing import Router


def load_feed_forward(
    loading: Loading, number: int, placement: Placement | None, exchange: Exchange | None
) -> FeedForward:
    """Return the feed-forward part of layer `number`; a plain one without `placement`.

    With `exchange` tokens go to their experts; without it they are on every rank.
    """
    config = loading.config
    norm = loading.norm(
        f"model.layers.{number}.post_attention_layernorm.weight", config.hidden_size
    )
    prefix = f"model.layers.{number}.mlp."
    if placement is not None:
        return _mixture(loading, norm, prefix, placement, exchange)
    width = config.intermediate_size
    gate, up, down = loading.mlp(prefix, width, loading.shard.part(width))
    return Dense(norm, loading.place(torch.cat((gate, up)).t()), loading.place(down.t()))


def _mixture(
    loading: Loading,
    norm: RMSNorm,
    prefix: str,
    placement: Placement,
    exchange: Exchange | None,
) -> FeedForward:
    shard, experts = loading.shard, loading.config.experts
    router = _router(loading, prefix)
    route = loading.get(prefix + "gate.weight", (experts.routed, loading.config.hidden_size))
    routed = _routed(loading, prefix, placement)
    shared = _shared(loading, prefix)
    weights = sum(weight.numel() for expert in routed for weight in expert)
    on_host = loading.device.type == "cpu"
    if on_host and exchange is None and shard.shared_sharded and weights <= TOGETHER_LIMIT:
        gates, ups, downs = zip(*routed, shared, strict=True)
        return ExpertsTogether(
            norm,
            router,
            placement,
            loading.place(torch.cat((*gates, *ups, route)).t()),
            loading.place(torch.cat(downs, dim=1).t()),
            slot_columns=routed[0][0].shape[0],
        )
    split = None if shard.dp_attention else shard
    apart = RoutedExperts(
        loading.place(torch.stack([torch.cat((gate, up)).t() for gate, up, _ in routed])),
        loading.place(torch.stack([down.t() for _, _, down in routed])),
    )
    everyones = SharedExperts(
        loading.place(torch.cat(shared[:2]).t()),
        loading.place(shared[2].t()),
        None if shard.shared_sharded else split,
    )
    route = loading.place(route.t())
    if exchange is None:
        return ExpertsApart(norm, router, placement, route, apart, everyones)
    return ExpertsDispatched(norm, router, placement, route, apart, everyones, exchange, split)


def _router(loading: Loading, prefix: str) -> Router:
    experts = loading.config.experts
    if not experts.routing.correction:
        return Router(experts.routing, None)
    bias = loading.get(prefix + "gate.e_score_correction_bias", (experts.routed,))
    return Router(experts.routing, bias.to(loading.device))


def _routed(loading: Loading, prefix: str, placement: Placement) -> list[Gated]:
    """Return the experts in this rank's slots; their scaling factor is in the last weight."""
    experts = loading.config.experts
    part = loading.shard.expert_part(experts.width)
    routed = []
    for expert in placement.experts[placement.own].tolist():
        gate, up, down = loading.mlp(f"{prefix}experts.{expert}.", experts.width, part)
        routed.append((gate, up, down * experts.routing.scale))
    return routed


def _shared(loading: Loading, prefix: str) -> Gated:
    """Return this rank's part of the shared experts; no columns where there are none."""
    width = loading.config.experts.shared_width
    if not width:
        hidden = loading.config.hidden_size
        nothing = torch.empty(0, hidden, device=loading.device, dtype=loading.dtype)
        return nothing, nothing, nothing.t()
    return loading.mlp(prefix + "shared_experts.", width, loading.shard.shared_part(width))
