"""A layer's experts as the kernels take them."""

from __future__ import annotations

from dataclasses import replace

import torch

from panel.kernels.experts import ExpertWeights
from panel.kernels.router import Routing
from panel.server.dispatch import ExpertsDispatched
from panel.server.experts import ExpertsApart
from panel.server.model import Model
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


def weights_of(experts: ExpertsApart | ExpertsDispatched) -> ExpertWeights:
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


def expert_layers(model: Model) -> tuple[ExpertWeights | None, ...]:
    """Return the experts of each layer; None for a plain one."""
    parts = [layer.feed_forward for layer in model.layers]
    return tuple(
        weights_of(part) if isinstance(part, ExpertsApart | ExpertsDispatched) else None
        for part in parts
    )


def with_table(weights: ExpertWeights, placement: Placement, rows: int) -> ExpertWeights:
    """Return the weights with the places of the experts as they are now, for so many rows.

    A graph that captures this reads the places anew each time: a rebalance changes them. Replicas
    take turns by rules that a rebalance changes too, so that the table has a line for each row.
    """
    if placement.everything:
        return weights
    if not placement.replicated:
        return replace(weights, table=placement.held)
    experts, device = placement.experts[placement.own], placement.experts.device
    row = torch.arange(rows, device=device)[:, None]
    period, turn = placement.period[placement.own], placement.turn[placement.own]
    slots = torch.arange(experts.shape[0], dtype=torch.int32, device=device)
    slots = torch.where(row % period == turn, slots, -1)
    table = torch.full((rows, weights.route.shape[1]), -1, dtype=torch.int32, device=device)
    table.scatter_reduce_(1, experts.expand(rows, -1), slots, "amax")
    return replace(weights, table=table)
