"""Order between sources: the time at which bytes arrived, never the time that engines print."""

from __future__ import annotations

import heapq
from bisect import bisect_left, bisect_right
from collections.abc import Iterable, Iterator
from typing import Protocol, TypeVar

import msgspec


class Arrivals:
    """When the bytes of one log arrived, from the pairs of its `.times` file or of a window."""

    def __init__(self, pairs: Iterable[tuple[float, int]] = ()) -> None:
        self._offsets: list[int] = []
        self._times: list[float] = []
        self.extend(pairs)

    def extend(self, pairs: Iterable[tuple[float, int]]) -> None:
        """Add (seconds since launch, offset) pairs in order; known ones are passed over.

        Times never go back, so that the records of a source stay sorted by time.
        """
        for t, offset in pairs:
            if self._offsets and offset <= self._offsets[-1]:
                continue
            self._offsets.append(offset)
            self._times.append(max(t, self._times[-1]) if self._times else t)

    def at(self, offset: int) -> float:
        """Return when the byte at `offset` arrived, in seconds since launch; 0 if nobody noted."""
        if not self._times:
            return 0.0
        return self._times[max(bisect_right(self._offsets, offset) - 1, 0)]

    def offset_at(self, t: float, *, after: bool = False) -> int | None:
        """Return from which byte on all arrived at `t` or later; None if none did yet.

        With `after`, later than `t`. Without arrival times it is the first byte.
        """
        index = (bisect_right if after else bisect_left)(self._times, t)
        if index == len(self._times):
            return None if self._times else 0
        return self._offsets[index] if index else 0


class _Arrival(msgspec.Struct, frozen=True):
    t: float
    offset: int


_arrival = msgspec.json.Decoder(_Arrival)


def parse_times(data: bytes) -> list[tuple[float, int]]:
    """Return the pairs of a `.times` file, without lines that are broken or half written."""
    pairs = []
    for line in data.splitlines():
        try:
            arrival = _arrival.decode(line)
        except msgspec.DecodeError:
            continue
        pairs.append((arrival.t, arrival.offset))
    return pairs


class Placed(Protocol):
    """What can be put in order between sources."""

    @property
    def t(self) -> float: ...
    @property
    def source(self) -> str: ...
    @property
    def offset(self) -> int: ...


P = TypeVar("P", bound=Placed)


def place(record: Placed) -> tuple[float, str, int]:
    """Return the place of a record among those of all sources."""
    return record.t, record.source, record.offset


def merge(streams: Iterable[Iterable[P]]) -> Iterator[P]:
    """Merge streams, each of one source and in its order, by arrival time, source and offset."""
    return heapq.merge(*streams, key=place)
