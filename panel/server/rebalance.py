"""Moves experts to where their load asks for them, while serving."""

from __future__ import annotations

import logging
import time
from collections.abc import Sequence

import numpy as np
import torch

from panel.server.courier import Courier
from panel.server.eplb import Ints, balance, balancedness, settle
from panel.server.experts import Mixture
from panel.server.location import Table
from panel.server.messages import Rebalanced
from panel.server.moves import Moves, plan_moves
from panel.server.place import Place

log = logging.getLogger(__name__)


class Rebalancer:
    """This rank's part in moving the experts of all layers.

    Weights and tables change in place, between two steps, so that whatever has been captured with
    them stays valid.
    """

    def __init__(
        self, place: Place, layers: Sequence[Mixture], load: torch.Tensor, courier: Courier
    ) -> None:
        """`load` is this rank's count of choices, [layers, experts]."""
        self.table = place.location
        self._shard = place.shard
        self._options = place.options
        self._groups = place.config.experts.routing.groups
        self._barrier = place.shared.barrier
        self._roster = place.shared.roster
        self._loads = place.shared.load(place.shard.tp_size, len(layers))
        self._agreed = place.shared.location(len(layers))
        self._experts: Ints = np.array(self.table)
        self._layers = layers
        self._load = load
        # On a CPU rank the counts are in shared memory to begin with.
        self._seen = torch.zeros_like(load, device="cpu", pin_memory=True) if load.is_cuda else None
        self._courier = courier

    def load(self) -> Ints:
        """Return how often experts were chosen since the last rebalance, [layers, experts]."""
        total: Ints = self._loads.sum(0).numpy()
        return total

    def balancedness(self) -> float | None:
        """Return how evenly the load of now is spread over the ranks; 1 is perfect."""
        return self._balancedness(self.load())

    def publish(self) -> None:
        """Let all ranks see what this one has counted."""
        if self._seen is not None:
            self._seen.copy_(self._load)
            self._loads[self._shard.rank].copy_(self._seen)

    def show(self) -> None:
        """Let all ranks see what this one had counted the last time, without a wait for it."""
        if self._seen is not None:
            self._loads[self._shard.rank].copy_(self._seen)
            self._seen.copy_(self._load, non_blocking=True)

    def forget(self) -> None:
        """Begin to count anew."""
        self._load.zero_()
        self.publish()

    def __call__(self) -> Rebalanced:
        """Take part in a rebalance; all ranks call this together."""
        begun = time.perf_counter()
        self.publish()
        self._meet()
        load = self.load()
        if self._shard.rank == 0:
            self._agreed.copy_(torch.tensor(self._wanted(load)))
        self._meet()
        before = self._balancedness(load)
        new: Table = tuple(map(tuple, self._agreed.tolist()))
        moved = 0
        for layer, old_experts, experts in zip(self._layers, self.table, new, strict=True):
            if old_experts != experts:
                moves = plan_moves(old_experts, experts, self._shard.ep_size)
                self._move(layer, moves)
                layer.placement.move(experts)
                moved += len(moves.local) + len(moves.remote)
        self.table, self._experts = new, np.array(new)
        self.forget()
        self._meet()
        after = self._balancedness(load)
        report = Rebalanced(before, after, moved, time.perf_counter() - begun)
        log.info(
            "rebalanced: balancedness %s to %s, %d experts moved, %.1f ms",
            *(f"{value:.3f}" if value is not None else "unknown" for value in (before, after)),
            moved,
            report.seconds * 1e3,
        )
        return report

    def _balancedness(self, load: Ints) -> float | None:
        return balancedness(load, self._experts, self._shard.ep_size)

    def _wanted(self, load: Ints) -> Table:
        if not load.any():
            return self.table
        new = balance(
            load.tolist(),
            len(self.table[0]),
            self._shard.ep_size,
            groups=self._groups,
            domains=self._options.eplb_domains,
        )
        return settle(self.table, new, self._shard.ep_size)

    def _move(self, layer: Mixture, moves: Moves) -> None:
        own = layer.placement.own
        mine = range(own.start, own.stop)
        group, part = divmod(self._shard.rank, self._shard.expert_tp_size)
        # What is overwritten may still have to go elsewhere.
        leaving = {
            slot: layer_parcel(layer, slot - own.start)
            for slot in {*moves.local.values(), *moves.remote.values()}
            if slot in mine
        }
        for slot, source in moves.local.items():
            if slot in mine:
                unpack(layer, slot - own.start, leaving[source])
        for handed in moves.rounds:
            owner = {source: home for home, source in handed.items()}
            taken = {s: owner[source] for s, source in moves.remote.items() if source in owner}
            size = len(mine)
            to = {slot // size for slot, home in taken.items() if home == group}
            wanted = {home for slot, home in taken.items() if slot in mine}
            parcels = self._courier.carry(
                leaving.get(handed.get(group, -1)),
                [self._rank(other, part) for other in sorted(to)],
                [self._rank(home, part) for home in sorted(wanted)],
            )
            for slot, home in taken.items():
                if slot in mine:
                    unpack(layer, slot - own.start, parcels[self._rank(home, part)])

    def _rank(self, group: int, part: int) -> int:
        return group * self._shard.expert_tp_size + part

    def _meet(self) -> None:
        self._barrier.wait(self._roster)


def layer_parcel(layer: Mixture, slot: int) -> torch.Tensor:
    """Return a copy of the weights in a slot of this rank, flat."""
    return torch.cat([weight.flatten() for weight in layer.weights(slot)])


def unpack(layer: Mixture, slot: int, parcel: torch.Tensor) -> None:
    """Put a parcel's weights into a slot of this rank."""
    weights = layer.weights(slot)
    pieces = parcel.split([weight.numel() for weight in weights])
    for weight, piece in zip(weights, pieces, strict=True):
        weight.copy_(piece.view(weight.shape))
