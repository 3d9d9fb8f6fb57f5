"""`<source>.holes`: ranges that were punched out of the middle of an overlong log.

Offsets and line numbers outside stay valid: each line of the file says how many lines were lost.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Sequence
from typing import NamedTuple


class Hole(NamedTuple):
    """Bytes that are gone; a reader would see zeros."""

    start: int
    end: int
    lines: int
    """Newlines that stood there."""


def parse_holes(data: bytes) -> tuple[Hole, ...]:
    """Return the holes of a `.holes` file in order, adjoining ones as one; broken lines are passed
    over."""
    holes: list[Hole] = []
    for hole in sorted(_read(data)):
        if holes and hole.start <= holes[-1].end:
            last = holes.pop()
            hole = Hole(last.start, max(last.end, hole.end), last.lines + hole.lines)
        holes.append(hole)
    return tuple(holes)


def _read(data: bytes) -> Iterable[Hole]:
    for line in data.splitlines():
        try:
            said = json.loads(line)
            yield Hole(int(said["start"]), int(said["end"]), int(said["lines"]))
        except (ValueError, KeyError, TypeError):
            continue


def kept(start: int, end: int, holes: Sequence[Hole]) -> list[tuple[int, int]]:
    """Return the ranges between `start` and `end` that are still there."""
    ranges = []
    for hole in holes:
        if start < min(hole.start, end):
            ranges.append((start, min(hole.start, end)))
        start = max(start, hole.end)
    return [*ranges, (start, end)] if start < end else ranges


def past(offset: int, holes: Sequence[Hole]) -> int:
    """Return `offset`, or the end of the hole that it is in."""
    return next((hole.end for hole in holes if hole.start <= offset < hole.end), offset)
