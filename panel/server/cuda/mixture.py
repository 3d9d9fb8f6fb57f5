"""A layer's experts as the kernels take them."""

from __future__ import annotations

from dataclasses import replace

import torch

from panel.kernels.experts import ExpertWeights
from panel.kernels.router import Routing
from panel.server.experts import ExpertsApart
from panel.server.placement import Placement
from panel.server.shape import ExpertShape


def routing_of(shape: ExpertShape) -> Routing:
    """Return the rule by which a model's rows choose their experts."""
    rule = shape.routing
    return Routing(
        experts=shape.routed,
        chosen=rule.experts_per_token,
        sigmoid=rule.scoring == "sigmoid",
        normalise=rule.normalise,
        groups=rule.groups,
        groups_kept=rule.groups_per_token,
        group_best=rule.group_best,
    )


def weights_of(experts: ExpertsApart) -> ExpertWeights:
    """Return views of a layer's weights."""
    return ExpertWeights(
        gain=experts.norm.gain,
        floor=experts.norm.floor,
        route=experts.route,
        gate_up=experts.routed.gate_up,
        down=experts.routed.down,
        shared_gate_up=experts.shared.gate_up,
        shared_down=experts.shared.down,
        bias=experts.router.bias,
    )


def with_table(weights: ExpertWeights, placement: Placement) -> ExpertWeights:
    """Return the weights with the places of the experts as they are now.

    A graph that captures this reads the places anew each time: a rebalance changes them.
    """
    if placement.everything:
        return weights
    count = weights.route.shape[1]
    table = torch.full((count,), -1, dtype=torch.int32, device=weights.route.device)
    own = placement.experts[placement.own]
    table[own] = torch.arange(own.shape[0], dtype=torch.int32, device=own.device)
    return replace(weights, table=table)
