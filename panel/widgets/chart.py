"""Lines over time, drawn with the dots of braille characters, or with `*` where there are none."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import groupby
from typing import NamedTuple

from panel.widgets.glyphs import Glyphs
from panel.widgets.spans import Row, Span, Tone
from panel.widgets.timeline import Values

_BRAILLE = 0x2800
_DOTS = ((0x40, 0x04, 0x02, 0x01), (0x80, 0x20, 0x10, 0x08))
"""Bits of a braille character by column and, from below, by row."""


class Line(NamedTuple):
    """One line: a value a dot, oldest first."""

    values: Values
    tone: Tone


def dots(glyphs: Glyphs) -> tuple[int, int]:
    """Return how many dots a cell has across and upward."""
    return (2, 4) if glyphs.braille else (1, 1)


def draw(lines: Sequence[Line], top: float, size: tuple[int, int], glyphs: Glyphs) -> list[Row]:
    """Return rows of `size` (cells across and down) with all lines; `top` touches the upper edge.

    Where lines meet in a cell it has the tone of the later one.
    """
    width, height = size
    across, upward = dots(glyphs)
    bits = [[0] * width for _ in range(height)]
    tones = [[Tone.PLAIN] * width for _ in range(height)]
    for line in lines:
        before: int | None = None
        for x, value in enumerate(line.values[: width * across]):
            if value is None:
                before = None
                continue
            y = _level(value, top, height * upward)
            for dot in _stroke(before, y):
                row, column = height - 1 - dot // upward, x // across
                bits[row][column] |= _DOTS[x % across][dot % upward]
                tones[row][column] = line.tone
            before = y
    return [_row(*pair, glyphs) for pair in zip(bits, tones, strict=True)]


def _level(value: float, top: float, levels: int) -> int:
    share = value / top if top > 0 else 0.0
    return round(min(max(share, 0.0), 1.0) * (levels - 1))


def _stroke(before: int | None, y: int) -> range:
    """Return the dots of a column: from beside the one before up or down to `y`."""
    if before is None or before == y:
        return range(y, y + 1)
    return range(before + 1, y + 1) if before < y else range(y, before)


def _row(bits: list[int], tones: list[Tone], glyphs: Glyphs) -> Row:
    cells = [(tone, _sign(bit, glyphs)) for bit, tone in zip(bits, tones, strict=True)]
    return tuple(
        Span("".join(sign for _, sign in run), tone)
        for tone, run in groupby(cells, key=lambda cell: cell[0])
    )


def _sign(bits: int, glyphs: Glyphs) -> str:
    if not bits:
        return " "
    return chr(_BRAILLE + bits) if glyphs.braille else "*"
