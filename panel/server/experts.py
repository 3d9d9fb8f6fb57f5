"""Feed-forward parts: dense layers and mixtures of experts.

The scaling factor of the routed experts is in their down-projections.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Protocol

import torch
from torch.nn.functional import silu

from panel.server.norm import RMSNorm
from panel.server.routing import Router

TOGETHER_LIMIT = 1 << 21
"""Most weights of a rank's routed experts of one layer for which all of them are computed for every
token. Below it a step is bound by the number of operators, above it by the weights read. It follows
from the shape alone, so that all ranks choose alike."""


class FeedForward(Protocol):
    """The second half of a layer."""

    def __call__(self, hidden: torch.Tensor, part: torch.Tensor) -> None:
        """Write this rank's part of the result for `hidden` into `part`, both [rows, hidden]."""
        ...


@dataclass(frozen=True, slots=True)
class Dense:
    """A plain gated feed-forward part."""

    norm: RMSNorm
    gate_up: torch.Tensor
    """[hidden, 2 * columns]: all gates, then all ups."""
    down: torch.Tensor
    """[columns, hidden]"""

    def __call__(self, hidden: torch.Tensor, part: torch.Tensor) -> None:
        gate, up = torch.mm(self.norm(hidden), self.gate_up).chunk(2, dim=1)
        torch.mm(silu(gate).mul_(up), self.down, out=part)


@dataclass(frozen=True, slots=True)
class ExpertsTogether:
    """All local experts, routed and shared, as one wide feed-forward part with weighted columns."""

    norm: RMSNorm
    router: Router
    gate_up_route: torch.Tensor
    """[hidden, 2 * columns + experts]: all gates, all ups, the router."""
    down: torch.Tensor
    """[columns, hidden]"""
    owner: torch.Tensor
    """The expert of each routed column, int64; the shared columns come after these."""

    def __call__(self, hidden: torch.Tensor, part: torch.Tensor) -> None:
        columns = self.down.shape[0]
        experts = self.router.bias.shape[0]
        projected = torch.mm(self.norm(hidden), self.gate_up_route)
        gate, up, logits = projected.split_with_sizes((columns, columns, experts), dim=1)
        act = silu(gate).mul_(up)
        weights = torch.index_select(self.router(logits), 1, self.owner)
        act[:, : self.owner.shape[0]].mul_(weights)
        torch.mm(act, self.down, out=part)


@dataclass(frozen=True, slots=True)
class ExpertsApart:
    """Each local expert for its own tokens: nothing is computed that no token asked for."""

    norm: RMSNorm
    router: Router
    route: torch.Tensor
    """[hidden, experts]"""
    first: int
    """Number of the first local expert."""
    gate_up: torch.Tensor
    """[local experts, hidden, 2 * columns]"""
    down: torch.Tensor
    """[local experts, columns, hidden]"""
    shared_gate_up: torch.Tensor
    """[hidden, 2 * shared columns]; no columns where the model has no shared experts."""
    shared_down: torch.Tensor
    """[shared columns, hidden]"""

    def __call__(self, hidden: torch.Tensor, part: torch.Tensor) -> None:
        normed = self.norm(hidden)
        gate, up = torch.mm(normed, self.shared_gate_up).chunk(2, dim=1)
        torch.mm(silu(gate).mul_(up), self.shared_down, out=part)
        weights = self.router(torch.mm(normed, self.route))
        for local in range(self.gate_up.shape[0]):
            weight = weights[:, self.first + local]
            rows = weight.nonzero().squeeze(1)
            if rows.numel():
                gate, up = torch.mm(normed[rows], self.gate_up[local]).chunk(2, dim=1)
                act = silu(gate).mul_(up).mul_(weight[rows, None])
                part.index_add_(0, rows, torch.mm(act, self.down[local]))
