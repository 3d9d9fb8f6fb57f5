"""Windows into logs: whole lines, redacted, with the times at which they arrived."""

from __future__ import annotations

import json
import mmap
import os
from collections.abc import Iterator
from pathlib import Path
from typing import BinaryIO

from panel.domain.redact import redact
from panel.domain.wire import LogWindow
from panel.supervisor.evidence import Folder

MOST_BYTES = 1 << 20
TAIL = -1
"""Offset that asks for the end of the log."""
_LONGEST_BACK = 1 << 16


def read_window(folder: Folder, source: str, offset: int, limit: int) -> LogWindow:
    """Return the lines from `offset` on, about `limit` bytes; with `TAIL` the last of the log.

    An offset inside a line moves back to its beginning. A last line without newline counts when
    nothing follows it. A log that does not exist is empty.
    """
    limit = max(1, min(limit, MOST_BYTES))
    try:
        with folder.log(source).open("rb") as file:
            size = os.fstat(file.fileno()).st_size
            if offset == TAIL:
                start = _after_newline(file, max(0, size - limit), size)
            else:
                asked = min(offset, size)
                start = _line_start(file, asked, size)
                limit += asked - start
            data = _whole_lines(file, start, limit, size)
    except OSError:
        return LogWindow(source=source, offset=0, end=0, size=0, text="")
    end = start + len(data)
    return LogWindow(
        source=source,
        offset=start,
        end=end,
        size=size,
        text=redact(data.decode(errors="replace")),
        times=tuple(arrivals(folder.times(source), start, end)),
    )


def arrivals(path: Path, start: int, end: int) -> Iterator[tuple[float, int]]:
    """Yield (seconds since launch, offset) of the bytes from `start` to `end`.

    The first pair may lie before `start`: it says when those bytes arrived.
    """
    try:
        with path.open("rb") as file, mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ) as data:
            position = _search(data, start)
            while position < len(data):
                line = data[position : _line_end(data, position)]
                position += len(line)
                pair = _pair(line)
                if pair is not None and pair[1] >= end > start:
                    return
                if pair is not None:
                    yield pair
    except (OSError, ValueError):
        return  # Missing or, as mmap puts it, empty.


def _after_newline(file: BinaryIO, position: int, size: int) -> int:
    """Return the first beginning of a line at `position` or later; `position` if there is none."""
    if position == 0:
        return 0
    file.seek(position - 1)
    found = file.read(size - position + 1).find(b"\n")
    return position if found < 0 else position + found


def _line_start(file: BinaryIO, position: int, size: int) -> int:
    """Return the beginning of the line that `position` is in; one that is too long is cut."""
    if position in (0, size):
        return position
    first = max(0, position - _LONGEST_BACK)
    file.seek(first)
    newline = file.read(position - first).rfind(b"\n")
    if newline >= 0:
        return first + newline + 1
    return 0 if first == 0 else position


def _whole_lines(file: BinaryIO, start: int, limit: int, size: int) -> bytes:
    file.seek(start)
    data = file.read(min(limit, size - start))
    if start + len(data) == size:
        return data
    # A line longer than the window is cut: the reader must get on.
    return data[: data.rfind(b"\n") + 1] or data


def _search(data: mmap.mmap, offset: int) -> int:
    """Return the position of the last line of `.times` whose offset is at most `offset`."""
    low, high = 0, len(data)
    while low < high:
        middle = (low + high) // 2
        line = max(data.rfind(b"\n", 0, middle) + 1, 0)
        pair = _pair(data[line : _line_end(data, line)])
        if pair is not None and pair[1] <= offset:
            low = max(_line_end(data, line), middle + 1)
        else:
            high = line if line < middle else middle
    return max(data.rfind(b"\n", 0, max(low - 1, 0)) + 1, 0)


def _line_end(data: mmap.mmap, start: int) -> int:
    found = data.find(b"\n", start)
    return len(data) if found < 0 else found + 1


def _pair(line: bytes) -> tuple[float, int] | None:
    try:
        sample = json.loads(line)
        return float(sample["t"]), int(sample["offset"])
    except (ValueError, KeyError, TypeError):
        return None
