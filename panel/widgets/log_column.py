"""The column at the right edge of a log: where the page stands, and where the errors are. Pure."""

from __future__ import annotations

from collections.abc import Sequence

from panel.widgets.glyphs import Glyphs
from panel.widgets.spans import Span, Tone


def column(
    errors: Sequence[int], shown: tuple[float, float], end: float, glyphs: Glyphs
) -> list[Span]:
    """Return a sign a line for the time from 0 to `end`: blocks for errors, the more the higher;
    else a bar where `shown`, the times on screen, lies."""
    cells = len(errors)
    first, last = (min(int(t / end * cells), cells - 1) if end > 0 else 0 for t in shown)
    most = max(errors, default=0)
    signs = []
    for cell, many in enumerate(errors):
        if many:
            height = 1 + round(many / most * (len(glyphs.blocks) - 2))
            signs.append(Span(glyphs.blocks[height], Tone.BAD))
        else:
            signs.append(Span(glyphs.bar if first <= cell <= last else " ", Tone.DIM))
    return signs
