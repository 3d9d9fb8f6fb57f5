"""Heartbeats: one 64-byte record a rank in a small file that everybody maps.

Written by the ranks, read by the front end (`/ready`) and by the supervisor. A store of a whole
record is not atomic; every field stands for itself, so a reader loses nothing by that.
"""

from __future__ import annotations

import mmap
import os
import struct
import time
from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple

from panel.server.phases import ORDER, Phase

_BEAT = struct.Struct("<QQIIIIQ")
_LEDGER = struct.Struct("<QQ")
"""Meetings and waiting; they change between beats."""
_LEDGER_AT = _BEAT.size
RECORD_SIZE = 64


@dataclass(frozen=True, slots=True)
class Beat:
    """What a rank last said of itself."""

    mono_ns: int
    """CLOCK_MONOTONIC at the beat; 0 before the first one."""
    step: int
    """Model steps done, idle ticks included."""
    phase: Phase
    pid: int
    done: int
    """Progress inside the phase, in units of `total` (tensors, graph buckets)."""
    total: int
    detail: int
    """A number that goes with the progress: the batch size being captured, else 0."""
    meetings: int = 0
    """How many meetings with the other ranks it has come to."""
    waiting: bool = False
    """It has been waiting in the last one for more than a moment."""

    def age(self, now_ns: int | None = None) -> float:
        """Seconds since the beat (CLOCK_MONOTONIC is one clock for all processes of a host)."""
        return ((time.monotonic_ns() if now_ns is None else now_ns) - self.mono_ns) / 1e9


class Ledger(NamedTuple):
    """Numbers by rank that the ranks change in place, readable from outside the gang."""

    meetings: memoryview
    waiting: memoryview


class HeartbeatFile:
    """The mapped file of `world_size` records."""

    def __init__(self, path: Path, world_size: int, *, create: bool = False) -> None:
        flags = os.O_RDWR | (os.O_CREAT if create else 0)
        fd = os.open(path, flags, 0o600)
        try:
            size = world_size * RECORD_SIZE
            if create:
                os.ftruncate(fd, size)
            self._map = mmap.mmap(fd, size)
        finally:
            os.close(fd)
        self.world_size = world_size

    def beat(
        self, rank: int, phase: Phase, step: int, done: int = 0, total: int = 0, detail: int = 0
    ) -> None:
        """Write the record of `rank` with the present time."""
        _BEAT.pack_into(
            self._map,
            rank * RECORD_SIZE,
            time.monotonic_ns(),
            step,
            ORDER.index(phase),
            os.getpid(),
            done,
            total,
            detail,
        )

    def read(self, rank: int) -> Beat:
        """Return the record of `rank`."""
        place = rank * RECORD_SIZE
        mono_ns, step, phase, pid, done, total, detail = _BEAT.unpack_from(self._map, place)
        meetings, waiting = _LEDGER.unpack_from(self._map, place + _LEDGER_AT)
        known = ORDER[phase] if phase < len(ORDER) else Phase.STOPPED
        return Beat(mono_ns, step, known, pid, done, total, detail, meetings, bool(waiting))

    def read_all(self) -> tuple[Beat, ...]:
        """Return all records, by rank."""
        return tuple(self.read(rank) for rank in range(self.world_size))

    def ledger(self) -> Ledger:
        """Return the ledger. As long as it is held the file cannot be closed."""
        cells = memoryview(self._map).cast("Q")
        first, step = _LEDGER_AT // 8, RECORD_SIZE // 8
        return Ledger(cells[first::step], cells[first + 1 :: step])

    def close(self) -> None:
        """Unmap the file."""
        self._map.close()
