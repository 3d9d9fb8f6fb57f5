"""Feed-forward parts: dense layers and mixtures of experts whose tokens are on every rank.

The scaling factor of the routed experts is in their down-projections.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Protocol

import torch
from torch.nn.functional import silu

from panel.server.batch import Batch
from panel.server.norm import RMSNorm
from panel.server.parallel import Shard, length
from panel.server.placement import Placement
from panel.server.routing import Router

TOGETHER_LIMIT = 1 << 21
"""Most weights of a rank's routed experts of one layer for which all of them are computed for every
token. Below it a step is bound by the number of operators, above it by the weights read. It follows
from the shape alone, so that all ranks choose alike."""


class FeedForward(Protocol):
    """The second half of a layer."""

    def __call__(self, hidden: torch.Tensor, part: torch.Tensor, batch: Batch) -> None:
        """Write this rank's part of the result for `hidden` into `part`, both [rows, hidden]."""
        ...


class Mixture(FeedForward, Protocol):
    """A feed-forward part with routed experts, which can be moved."""

    placement: Placement

    def weights(self, slot: int) -> tuple[torch.Tensor, ...]:
        """Return views of the weights in a slot of this rank."""
        ...


@dataclass(frozen=True, slots=True)
class Dense:
    """A plain gated feed-forward part."""

    norm: RMSNorm
    gate_up: torch.Tensor
    """[hidden, 2 * columns]: all gates, then all ups."""
    down: torch.Tensor
    """[columns, hidden]"""

    def __call__(self, hidden: torch.Tensor, part: torch.Tensor, batch: Batch) -> None:
        gated(self.norm(hidden), self.gate_up, self.down, part)


@dataclass(frozen=True, slots=True)
class SharedExperts:
    """The experts that every token goes to, as one."""

    gate_up: torch.Tensor
    """[hidden, 2 * columns]; no columns where the model has no shared experts."""
    down: torch.Tensor
    """[columns, hidden]"""
    split: Shard | None
    """Where each rank has them whole and tokens are on every rank: who does which rows."""

    def __call__(self, normed: torch.Tensor, part: torch.Tensor) -> None:
        """Write this rank's part of the result into `part`."""
        if self.split is not None:
            part.zero_()
            mine = self.split.rows(part.shape[0])
            normed, part = normed[mine], part[mine]
        gated(normed, self.gate_up, self.down, part)


@dataclass(frozen=True, slots=True)
class RoutedExperts:
    """This rank's routed experts, each computed for its own tokens alone."""

    gate_up: torch.Tensor
    """[slots, hidden, 2 * columns]"""
    down: torch.Tensor
    """[slots, columns, hidden]"""

    def add(self, normed: torch.Tensor, weights: torch.Tensor, part: torch.Tensor) -> None:
        """Add the weighted results to `part`; `weights` has shape [rows, slots]."""
        for slot, weight in enumerate(weights.unbind(1)):
            rows = weight.nonzero().squeeze(1)
            if rows.numel():
                gate, up = torch.mm(normed[rows], self.gate_up[slot]).chunk(2, dim=1)
                act = silu(gate).mul_(up).mul_(weight[rows, None])
                part.index_add_(0, rows, torch.mm(act, self.down[slot]))

    def weights(self, slot: int) -> tuple[torch.Tensor, ...]:
        """Return views of the weights in a slot."""
        return self.gate_up[slot], self.down[slot]


@dataclass(frozen=True, slots=True)
class ExpertsTogether:
    """All local experts, routed and shared, as one wide feed-forward part with weighted columns."""

    norm: RMSNorm
    router: Router
    placement: Placement
    gate_up_route: torch.Tensor
    """[hidden, 2 * columns + experts]: all gates, all ups, the router."""
    down: torch.Tensor
    """[columns, hidden]: the slots' columns one after the other, then the shared ones."""
    slot_columns: int

    def __call__(self, hidden: torch.Tensor, part: torch.Tensor, batch: Batch) -> None:
        columns = self.down.shape[0]
        projected = torch.mm(self.norm(hidden), self.gate_up_route)
        sizes = (columns, columns, projected.shape[1] - 2 * columns)
        gate, up, logits = projected.split_with_sizes(sizes, dim=1)
        act = silu(gate).mul_(up)
        chosen = self.router(logits)
        self.placement.record(chosen, batch.real)
        weights = self.placement.local(chosen)
        slots = weights.shape[1]
        routed = act[:, : slots * self.slot_columns]
        torch.unflatten(routed, 1, (slots, -1)).mul_(weights.unsqueeze(2))
        torch.mm(act, self.down, out=part)

    @property
    def shared_bytes(self) -> int:
        """Bytes of the shared experts' weights."""
        hidden = self.down.shape[1]
        routed = length(self.placement.own) * self.slot_columns
        return 3 * (self.down.shape[0] - routed) * hidden * self.down.itemsize

    def weights(self, slot: int) -> tuple[torch.Tensor, ...]:
        mine = slice(slot * self.slot_columns, (slot + 1) * self.slot_columns)
        gates, ups, _ = self.gate_up_route.tensor_split(
            (self.down.shape[0], 2 * self.down.shape[0]), dim=1
        )
        return gates[:, mine], ups[:, mine], self.down[mine]


@dataclass(frozen=True, slots=True)
class ExpertsApart:
    """Each local expert for its own tokens: nothing is computed that no token asked for."""

    norm: RMSNorm
    router: Router
    placement: Placement
    route: torch.Tensor
    """[hidden, experts]"""
    routed: RoutedExperts
    shared: SharedExperts

    def __call__(self, hidden: torch.Tensor, part: torch.Tensor, batch: Batch) -> None:
        normed = self.norm(hidden)
        self.shared(normed, part)
        chosen = self.router(torch.mm(normed, self.route))
        self.placement.record(chosen, batch.real)
        self.routed.add(normed, self.placement.local(chosen), part)

    def weights(self, slot: int) -> tuple[torch.Tensor, ...]:
        return self.routed.weights(slot)


def gated(
    normed: torch.Tensor, gate_up: torch.Tensor, down: torch.Tensor, part: torch.Tensor
) -> None:
    """Write `(silu(gate) * up) @ down` into `part`."""
    gate, up = torch.mm(normed, gate_up).chunk(2, dim=1)
    torch.mm(silu(gate).mul_(up), down, out=part)
