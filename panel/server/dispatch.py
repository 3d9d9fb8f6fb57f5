"""A mixture of experts whose tokens go to their experts by all-to-all."""

from __future__ import annotations

from dataclasses import dataclass

import torch

from panel.server.batch import Batch
from panel.server.exchange import Exchange
from panel.server.experts import RoutedExperts, SharedExperts
from panel.server.norm import RMSNorm
from panel.server.parallel import Shard
from panel.server.placement import Placement
from panel.server.routing import Router


@dataclass(frozen=True, slots=True)
class ExpertsDispatched:
    """Each rank sends its rows: its own ones, or its part of those that are on every rank."""

    norm: RMSNorm
    router: Router
    placement: Placement
    route: torch.Tensor
    """[hidden, experts]"""
    routed: RoutedExperts
    shared: SharedExperts
    exchange: Exchange
    split: Shard | None
    """Where all rows are on every rank: who sends which."""

    def __call__(self, hidden: torch.Tensor, part: torch.Tensor, batch: Batch) -> None:
        normed, real = self.norm(hidden), batch.real
        self.shared(normed, part)
        if self.split is not None:
            mine = self.split.rows(part.shape[0])
            normed, part, real = normed[mine], part[mine], None if real is None else real[mine]
        chosen = self.router(torch.mm(normed, self.route))
        if real is not None:
            chosen *= real[:, None]
        self.placement.record(chosen, None)
        self.exchange(normed, self.placement.everywhere(chosen), self.routed, part)

    def weights(self, slot: int) -> tuple[torch.Tensor, ...]:
        """Return views of the weights in a slot of this rank."""
        return self.routed.weights(slot)
