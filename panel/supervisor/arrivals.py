"""`<source>.times` by offset and by time, without reading all of it."""

from __future__ import annotations

import contextlib
import json
import mmap
from array import array
from bisect import bisect_left
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path

_Pair = tuple[float, int]


def arrivals(path: Path, start: int, end: int) -> Iterator[_Pair]:
    """Yield (seconds since launch, offset) of the bytes from `start` to `end`.

    The first pair may lie before `start`: it says when those bytes arrived.
    """
    with _mapped(path) as data:
        position = _last(data, lambda pair: pair[1] <= start)
        while position < len(data):
            line = data[position : _line_end(data, position)]
            position += len(line)
            pair = _pair(line)
            if pair is not None and pair[1] >= end > start:
                return
            if pair is not None:
                yield pair


def offset_at(path: Path, t: float) -> int | None:
    """Return the offset from which on all arrived at `t` or later; None if nothing did."""
    with _mapped(path) as data:
        position = _last(data, lambda pair: pair[0] < t)
        while position < len(data):
            end = _line_end(data, position)
            pair = _pair(data[position:end])
            if pair is not None and pair[0] >= t:
                return pair[1]
            position = end
    return None


def runs(offsets: array[int], pairs: Sequence[_Pair]) -> tuple[tuple[float, int], ...]:
    """Return when ascending offsets arrived, as (seconds, how many of them)."""
    found, at = [], 0
    for number, (t, _) in enumerate(pairs):
        last = number + 1 == len(pairs)
        until = len(offsets) if last else bisect_left(offsets, pairs[number + 1][1], at)
        if until > at:
            found.append((t, until - at))
            at = until
    return tuple(found) if pairs else ((0.0, len(offsets)),)


@contextlib.contextmanager
def _mapped(path: Path) -> Iterator[mmap.mmap | bytes]:
    """Map the file; one that is missing or empty is no bytes."""
    try:
        with path.open("rb") as file, mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ) as data:
            yield data
    except (OSError, ValueError):
        yield b""


def _last(data: mmap.mmap | bytes, before: Callable[[_Pair], bool]) -> int:
    """Return where the last line begins whose pair is `before`; of none, where the first does."""
    low, high = 0, len(data)
    while low < high:
        middle = (low + high) // 2
        line = max(data.rfind(b"\n", 0, middle) + 1, 0)
        pair = _pair(data[line : _line_end(data, line)])
        if pair is not None and before(pair):
            low = max(_line_end(data, line), middle + 1)
        else:
            high = line if line < middle else middle
    return max(data.rfind(b"\n", 0, max(low - 1, 0)) + 1, 0)


def _line_end(data: mmap.mmap | bytes, start: int) -> int:
    found = data.find(b"\n", start)
    return len(data) if found < 0 else found + 1


def _pair(line: bytes) -> _Pair | None:
    try:
        sample = json.loads(line)
        return float(sample["t"]), int(sample["offset"])
    except (ValueError, KeyError, TypeError):
        return None
