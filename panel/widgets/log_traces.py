"""Tracebacks as few rows: the head, the last frame, the exception. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

from panel.logs.fold import Row
from panel.logs.merge import place
from panel.logs.severity import TRACEBACK, Level

RowPlace = tuple[float, str, int, int]
"""Of a row among all: that of its first record, and its part of the line."""

_FRAME = '  File "'


def row_place(row: Row) -> RowPlace:
    """Return the place of a row."""
    return *place(row.first), row.first.part


class Collapsed(NamedTuple):
    """Rows without the frames that nobody opened."""

    rows: list[Row]
    frames: dict[RowPlace, int]
    """How many frames are hidden below the head of a traceback."""
    heads: dict[RowPlace, RowPlace]
    """The head by each hidden row."""
    traces: dict[RowPlace, list[Row]]
    """All rows of a closed traceback, by its head."""


@dataclass(slots=True)
class _Trace:
    head: RowPlace
    rows: list[Row]
    """All, the exception included."""
    last: list[RowPlace] = field(default_factory=list)
    """Rows of the frame read last."""


def collapse(rows: Sequence[Row], opened: Iterable[RowPlace]) -> Collapsed:
    """Hide all frames but the last of each traceback whose head is not among those `opened`.

    Lines of several speakers may stand between each other.
    """
    kept_open = set(opened)
    traces: dict[object, _Trace] = {}
    heads: dict[RowPlace, RowPlace] = {}
    frames: dict[RowPlace, int] = {}
    whole: dict[RowPlace, list[Row]] = {}
    for row in rows:
        if row.first.level < Level.ERROR and not traces:
            continue
        text, voice = row.first.text, (row.ranks, row.first.source, row.first.pid)
        if TRACEBACK in text:
            traces[voice] = _Trace(row_place(row), [row])
            continue
        trace = traces.get(voice)
        if trace is None:
            continue
        trace.rows.append(row)
        if not text.startswith(" "):
            del traces[voice]
            continue
        if text.startswith(_FRAME):
            if trace.last and trace.head not in kept_open:
                heads |= dict.fromkeys(trace.last, trace.head)
                frames[trace.head] = frames.get(trace.head, 0) + 1
                whole[trace.head] = trace.rows
            trace.last = []
        trace.last.append(row_place(row))
    if heads:
        shown = [row for row in rows if row_place(row) not in heads]
        return Collapsed(shown, frames, heads, whole)
    return Collapsed(list(rows), {}, {}, {})
