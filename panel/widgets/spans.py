"""Rows as data: pieces of text with a tone, made without a terminal and painted by `rows`."""

from __future__ import annotations

from collections.abc import Iterable
from enum import StrEnum
from typing import NamedTuple

from rich.cells import cell_len, set_cell_size


class Tone(StrEnum):
    """What a piece of text is to the operator; the style sheet gives it its look."""

    PLAIN = "plain"
    DIM = "dim"
    BRIGHT = "bright"
    GOOD = "good"
    BUSY = "busy"
    WARN = "warn"
    BAD = "bad"
    KEY = "key"
    HIT = "hit"


class Span(NamedTuple):
    """A piece of a row."""

    text: str
    tone: Tone = Tone.PLAIN


Row = tuple[Span, ...]
"""One line of a screen."""

BLANK: Row = ()


def cells(row: Iterable[Span]) -> int:
    """Return how many cells a row takes."""
    return sum(cell_len(span.text) for span in row)


def clip(text: str, width: int, more: str = "…") -> str:
    """Return `text` in at most `width` cells; what was cut off is marked by `more`."""
    if cell_len(text) <= width:
        return text
    return set_cell_size(text, max(width - len(more), 0)).rstrip() + more if width > 0 else ""


def fit(text: str, width: int, more: str = "…") -> str:
    """Return `text` in exactly `width` cells."""
    return set_cell_size(clip(text, width, more), width)


def right(text: str, width: int) -> str:
    """Return `text` in at least `width` cells, at the right edge."""
    return " " * (width - cell_len(text)) + text


def spread(left: Row, end: Row, width: int) -> Row:
    """Return a row with `end` at the right edge, at least one cell after `left`."""
    gap = max(width - cells(left) - cells(end), 1)
    return (*left, Span(" " * gap), *end)


def clipped(row: Row, width: int, more: str = "…") -> Row:
    """Return a row in at most `width` cells; what was cut off is marked by `more`."""
    if cells(row) <= width:
        return row
    kept: list[Span] = []
    room = width - cell_len(more)
    for span in row:
        text = span.text if cell_len(span.text) <= room else set_cell_size(span.text, max(room, 0))
        kept.append(Span(text, span.tone))
        room -= cell_len(text)
        if room <= 0:
            break
    return (*kept[:-1], Span(kept[-1].text.rstrip() + more, kept[-1].tone))


def wrap(text: str, width: int) -> list[str]:
    """Return `text` in lines of at most `width` cells, broken between words where there are any.

    Its indentation is kept on every line.
    """
    indent = min(len(text) - len(text.lstrip(" ")), width // 2)
    if indent and text.strip():
        return [" " * indent + line for line in wrap(text.strip(), width - indent)]
    lines, line = [], ""
    for word in text.split():
        while cell_len(word) > width:
            room = width - cell_len(line) - bool(line)
            head = set_cell_size(word, room if room > 4 else width).rstrip()
            if room <= 4 and line:
                lines.append(line)
                line = ""
            lines.append(f"{line} {head}" if line else head)
            line, word = "", word[len(head) :]
        if line and cell_len(line) + 1 + cell_len(word) > width:
            lines.append(line)
            line = word
        else:
            line = f"{line} {word}" if line else word
    return [*lines, line] if line else lines
