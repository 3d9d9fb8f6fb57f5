"""Sums over all ranks: the one collective of a layer."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Protocol

import torch
import torch.distributed as dist

from panel.server.meeting import Barrier
from panel.server.norm import RMSNorm
from panel.server.roster import Roster
from panel.server.sum_table import SumTable


class Reduction(Protocol):
    """Adds up what each rank computed of a layer.

    A rank writes its part into `part(rows)`, then every rank calls `add_sum_`.
    """

    path: str

    def part(self, rows: int) -> torch.Tensor:
        """Return the buffer for this rank's part, shape [rows, width]."""
        ...

    def add_sum_(self, hidden: torch.Tensor, norm: RMSNorm | None = None) -> torch.Tensor:
        """Add the sum of all ranks' parts to `hidden`, shape [rows, width].

        Return `norm` of the result, in memory of its own; without a norm `hidden` itself.
        """
        ...


class Alone:
    """One rank has nothing to add up."""

    path = "none"

    def __init__(self, buffer: torch.Tensor) -> None:
        self._buffer = buffer

    def part(self, rows: int) -> torch.Tensor:
        return self._buffer[:rows]

    def add_sum_(self, hidden: torch.Tensor, norm: RMSNorm | None = None) -> torch.Tensor:
        hidden.add_(self._buffer[: hidden.shape[0]])
        return hidden if norm is None else norm(hidden)


class SharedMemory:
    """Ranks of one host write into slots of shared memory, meet, and add up in rank order.

    Two sets of slots take turns: whoever writes into one set has met everybody since the sums over
    it were read. One meeting a sum is therefore enough.
    """

    path = "shm"

    def __init__(
        self, slots: torch.Tensor, buffer: torch.Tensor, barrier: Barrier, roster: Roster
    ) -> None:
        """`slots` has shape [2, ranks, slot elements], `buffer` [most rows, width]."""
        self._slots = slots
        self._buffer = buffer
        self._barrier = barrier
        self._roster = roster
        self._turn = 0
        self._views: dict[tuple[int, int], tuple[torch.Tensor, torch.Tensor]] = {}

    def part(self, rows: int) -> torch.Tensor:
        if rows * self._buffer.shape[1] > self._slots.shape[2]:
            return self._buffer[:rows]
        return self._view(rows)[0]

    def add_sum_(self, hidden: torch.Tensor, norm: RMSNorm | None = None) -> torch.Tensor:
        rows, width = hidden.shape
        fitting = self._slots.shape[2] // width
        if rows > fitting:
            for begin in range(0, rows, fitting):
                chunk = self._buffer[begin : min(begin + fitting, rows)]
                self._view(chunk.shape[0])[0].copy_(chunk)
                self._add(hidden[begin : begin + fitting])
        else:
            self._add(hidden)
        return hidden if norm is None else norm(hidden)

    def _add(self, hidden: torch.Tensor) -> None:
        mine, parts = self._view(hidden.shape[0])
        self._turn ^= 1
        if self._roster.rank == 0:
            mine.add_(hidden)
        self._barrier.wait(self._roster)
        torch.sum(parts, 0, out=hidden)

    def _view(self, rows: int) -> tuple[torch.Tensor, torch.Tensor]:
        """Return this rank's part and all parts of the present set, for `rows` rows."""
        key = (self._turn, rows)
        if key not in self._views:
            width = self._buffer.shape[1]
            slots = self._slots[self._turn, :, : rows * width]
            parts = torch.unflatten(slots, 1, (rows, width))
            self._views[key] = (parts[self._roster.rank], parts)
        return self._views[key]


class Distributed:
    """torch.distributed, over NCCL between GPUs or over gloo."""

    def __init__(self, buffer: torch.Tensor, path: str) -> None:
        self.path = path
        self._buffer = buffer

    def part(self, rows: int) -> torch.Tensor:
        return self._buffer[:rows]

    def add_sum_(self, hidden: torch.Tensor, norm: RMSNorm | None = None) -> torch.Tensor:
        total = self._buffer[: hidden.shape[0]]
        dist.all_reduce(total)
        hidden.add_(total)
        return hidden if norm is None else norm(hidden)


class Fastest:
    """Several paths that share one buffer: each number of rows takes the one that was fastest."""

    def __init__(
        self, buffer: torch.Tensor, paths: Mapping[str, Reduction], table: SumTable
    ) -> None:
        self.path = "+".join(paths)
        self._buffer = buffer
        self._paths = paths
        self._table = table
        self._known: dict[int, Reduction] = {}

    def part(self, rows: int) -> torch.Tensor:
        return self._buffer[:rows]

    def add_sum_(self, hidden: torch.Tensor, norm: RMSNorm | None = None) -> torch.Tensor:
        rows = hidden.shape[0]
        if rows not in self._known:
            self._known[rows] = self._paths[self._table.path(rows)]
        return self._known[rows].add_sum_(hidden, norm)
