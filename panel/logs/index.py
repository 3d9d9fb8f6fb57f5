"""Line numbers of a log and windows into it: one count of lines a megabyte, no copy of the data."""

from __future__ import annotations

from array import array
from bisect import bisect_right
from collections.abc import Sequence
from typing import NamedTuple

from panel.logs.files import LogFile
from panel.logs.holes import Hole, kept, past

BLOCK = 1 << 20
_LONGEST = 1 << 20


class Window(NamedTuple):
    """A piece of a log."""

    offset: int
    data: bytes
    """Whole lines, at least one, but for a last one without newline and one of a megabyte."""


class LineIndex:
    """How many lines begin before each megabyte; grows with the log, built only as far as asked."""

    def __init__(self, file: LogFile, holes: Sequence[Hole] = ()) -> None:
        self._file = file
        self._holes = holes
        self._before = array("Q", [0])
        """Newlines before each block that begins within what was counted."""

    def grow(self, size: int, most: int = 1 << 62) -> bool:
        """Count up to `most` more bytes of the log's `size`; return whether all blocks are done."""
        done = 0
        while (start := (len(self._before) - 1) * BLOCK) + BLOCK <= size and done < most:
            self._before.append(self._before[-1] + self._newlines(start, start + BLOCK))
            done += BLOCK
        return (len(self._before) - 1) * BLOCK + BLOCK > size

    def line_at(self, offset: int) -> int:
        """Return the number, from 1, of the line that the byte at `offset` belongs to."""
        self.grow(offset)
        block = min(offset // BLOCK, len(self._before) - 1)
        return self._before[block] + self._newlines(block * BLOCK, offset) + 1

    def offset_of(self, line: int, size: int) -> int:
        """Return where line number `line` begins; `size` where there are not as many."""
        while self._before[-1] < line - 1 and not self.grow(size, 1 << 26):
            pass
        block = max(bisect_right(self._before, line - 2) - 1, 0) if line > 1 else 0
        before, start = self._before[block], block * BLOCK
        while before < line - 1 and start < size:
            hole = next((hole for hole in self._holes if hole.start <= start < hole.end), None)
            if hole:
                before, start = before + hole.lines, hole.end
                continue
            end = min([start + BLOCK, size, *(h.start for h in self._holes if h.start > start)])
            data = self._file.read(start, end - start)
            if not data:
                return size
            found = data.count(b"\n")
            if before + found >= line - 1:
                return start + _nth(data, line - 1 - before)
            before, start = before + found, start + len(data)
        return min(start, size)

    def _newlines(self, start: int, end: int) -> int:
        inside = sum(hole.lines for hole in self._holes if start < hole.end <= end)
        ranges = kept(start, end, self._holes)
        return inside + sum(self._file.read(a, b - a).count(b"\n") for a, b in ranges)


def _nth(data: bytes, number: int) -> int:
    """Return the position behind the `number`th newline."""
    at = 0
    for _ in range(number):
        at = data.index(b"\n", at) + 1
    return at


def window(file: LogFile, offset: int, limit: int, size: int, holes: Sequence[Hole] = ()) -> Window:
    """Return about `limit` bytes of whole lines from the one that `offset` is in.

    An offset in a hole means the first line behind it; a window ends where a hole begins.
    """
    start = past(line_start(file, min(past(offset, holes), size)), holes)
    end = min([size, start + limit, *(hole.start for hole in holes if hole.start >= start)])
    data = file.read(start, end - start)
    if end < size and not any(hole.start == end for hole in holes):
        cut = data.rfind(b"\n") + 1
        data = data[:cut] if cut else _line(file, start, size)
    return Window(start, data)


def _line(file: LogFile, start: int, size: int) -> bytes:
    """Return the line that begins at `start`; one longer than a megabyte is cut."""
    data = file.read(start, min(_LONGEST, size - start))
    return data[: data.find(b"\n") + 1] or data


def line_start(file: LogFile, offset: int) -> int:
    """Return where the line that `offset` is in begins; one longer than a megabyte is cut."""
    reach = 4096
    while offset:
        first = max(offset - reach, 0)
        newline = file.read(first, offset - first).rfind(b"\n")
        if newline >= 0:
            return first + newline + 1
        if first == 0:
            return 0
        if reach >= _LONGEST:
            return offset
        reach *= 16
    return 0


def tail(file: LogFile, limit: int, size: int) -> Window:
    """Return the last whole lines, about `limit` bytes."""
    # One byte more shows whether a line begins just there.
    start = max(size - limit - 1, 0)
    data = file.read(start, size - start)
    cut = data.find(b"\n") + 1 if start else 0
    return Window(start + cut, data[cut:])
