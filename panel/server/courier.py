"""Carries weights of experts from rank to rank."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Protocol

import torch
import torch.distributed as dist

from panel.server.meeting import Barrier
from panel.server.roster import Roster


class Courier(Protocol):
    """All ranks call it together; each may hand out one parcel and take those of others."""

    def carry(
        self, parcel: torch.Tensor | None, to: Iterable[int], wanted: Iterable[int]
    ) -> dict[int, torch.Tensor]:
        """Hand `parcel` to ranks `to`; return what the ranks `wanted` hand to this one."""
        ...


class SharedMemoryCourier:
    """Ranks of one host."""

    def __init__(self, shelves: torch.Tensor, barrier: Barrier, roster: Roster) -> None:
        """`shelves` has shape [ranks, elements of a parcel]."""
        self._shelves = shelves
        self._barrier = barrier
        self._roster = roster

    def carry(
        self, parcel: torch.Tensor | None, to: Iterable[int], wanted: Iterable[int]
    ) -> dict[int, torch.Tensor]:
        if parcel is not None:
            self._shelves[self._roster.rank].copy_(parcel)
        self._barrier.wait(self._roster)
        parcels = {rank: self._shelves[rank].clone() for rank in wanted}
        self._barrier.wait(self._roster)
        return parcels


class DistributedCourier:
    """torch.distributed, over NCCL between GPUs or over gloo."""

    def __init__(self, blank: torch.Tensor) -> None:
        """`blank` is like a parcel, where the backend carries it."""
        self._blank = blank

    def carry(
        self, parcel: torch.Tensor | None, to: Iterable[int], wanted: Iterable[int]
    ) -> dict[int, torch.Tensor]:
        parcels = {rank: torch.empty_like(self._blank) for rank in wanted}
        moves = [dist.P2POp(dist.irecv, into, rank) for rank, into in parcels.items()]
        if parcel is not None:
            parcel = parcel.to(self._blank.device)
            moves += [dist.P2POp(dist.isend, parcel, rank) for rank in to]
        for work in dist.batch_isend_irecv(moves) if moves else ():
            work.wait()
        return parcels
