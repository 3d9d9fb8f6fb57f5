"""Where the experts of one layer are, as one rank sees it; changed in place by a rebalance."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass, replace

import torch

from panel.server.parallel import Shard


@dataclass(frozen=True, slots=True)
class Placement:
    """The slots of a layer and the rule that picks one replica of an expert for a row.

    Slot `s` takes the rows for which `row % period[s] == turn[s]`: the replicas of an expert that a
    rank uses take turns. Where tokens are on every rank the rule is the same everywhere, so that
    all ranks pick the same replica.
    """

    shard: Shard
    experts: torch.Tensor
    """The expert in each slot, int64 [slots]."""
    period: torch.Tensor
    """int64 [slots]"""
    turn: torch.Tensor
    """int64 [slots]; not below the period where the rank never picks the slot."""
    held: torch.Tensor
    """This rank's slot of each expert, counted from its first one, or -1: int32 [1, experts]. Of
    replicas the last."""
    own: slice
    """This rank's slots."""
    everything: bool
    """Whether each rank has (a part of) every expert, in order."""
    replicated: bool
    """Whether there are more slots than experts."""
    load: torch.Tensor | None
    """Tokens that chose each expert on this rank, int64 [experts]; None where another rank, which
    sees the same tokens, counts."""

    @classmethod
    def of(
        cls, experts: Sequence[int], shard: Shard, count: int, load: torch.Tensor | None
    ) -> Placement:
        """Return the placement of `count` experts in slots."""
        own = shard.experts(len(experts))
        blank = torch.zeros(len(experts), dtype=torch.int64)
        placement = cls(
            shard,
            blank,
            blank.clone(),
            blank.clone(),
            held=torch.full((1, count), -1, dtype=torch.int32),
            own=slice(own.start, own.stop),
            everything=shard.ep_size == 1,
            replicated=len(experts) > count,
            load=load,
        )
        placement.move(experts)
        return placement

    def to(self, device: torch.device) -> Placement:
        """Return the placement with its tables on `device`."""
        tables = (self.experts, self.period, self.turn, self.held)
        experts, period, turn, held = (table.to(device) for table in tables)
        return replace(self, experts=experts, period=period, turn=turn, held=held)

    def move(self, experts: Sequence[int]) -> None:
        """Change the tables to new experts in the same number of slots."""
        period, turn = replica_rule(experts, self.shard)
        held = [-1] * self.held.shape[1]
        for slot, expert in enumerate(experts[self.own]):
            held[expert] = slot
        tables = (self.experts, self.period, self.turn, self.held[0])
        for table, values in zip(tables, (experts, period, turn, held), strict=True):
            table.copy_(torch.tensor(values))

    def record(self, chosen: torch.Tensor, real: torch.Tensor | None) -> None:
        """Count the experts chosen by rows that are no padding; shapes [rows, experts], [rows]."""
        if self.load is not None:
            hits = chosen > 0
            if real is not None:
                hits &= real[:, None]
            self.load.add_(hits.sum(0))

    def local(self, chosen: torch.Tensor) -> torch.Tensor:
        """Return the weights of this rank's slots for `chosen`: [rows, own slots]."""
        return chosen if self.everything else self._spread(chosen, self.own)

    def everywhere(self, chosen: torch.Tensor) -> torch.Tensor:
        """Return the weights of all slots for `chosen`: [rows, slots]."""
        return self._spread(chosen, slice(None))

    def _spread(self, chosen: torch.Tensor, slots: slice) -> torch.Tensor:
        weights = torch.index_select(chosen, 1, self.experts[slots])
        if self.replicated:
            rows = torch.arange(chosen.shape[0], device=chosen.device)[:, None]
            weights *= torch.remainder(rows, self.period[slots]) == self.turn[slots]
        return weights


def replica_rule(experts: Sequence[int], shard: Shard) -> tuple[list[int], list[int]]:
    """Return period and turn of each slot for the rank `shard`.

    Without all-to-all all replicas take turns, for all ranks alike. With it a rank uses the nearest
    ones: its own, else those of its domain, else all; ranks begin with different ones.
    """
    replicas = defaultdict(list)
    for slot, expert in enumerate(experts):
        replicas[expert].append(slot)
    size = len(experts) // shard.ep_size
    period, turn = [1] * len(experts), [1] * len(experts)
    for slots in replicas.values():
        used = shard.nearest([slot // size for slot in slots]) if shard.dispatching else None
        picked = slots if used is None else [slots[number] for number in used]
        first = shard.rank if shard.dispatching else 0
        for number, slot in enumerate(picked):
            period[slot] = len(picked)
            turn[slot] = (number - first) % len(picked)
    return period, turn
