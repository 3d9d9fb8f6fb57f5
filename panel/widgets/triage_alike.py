"""Kinds of failure that look like the one that was found, and how they are told apart. Pure."""

from __future__ import annotations

from panel.domain.verdict import Verdict
from panel.widgets.glyphs import Glyphs
from panel.widgets.spans import Row, Span, Tone, wrap

_INDENT = 3


def alike_rows(verdict: Verdict, width: int, glyphs: Glyphs) -> list[Row]:
    """Return the section; the verdict's own kind has the pointer."""
    if not verdict.related:
        return []
    title = (Span("looks like", Tone.BRIGHT), Span(", and how it is told apart", Tone.DIM))
    rows: list[Row] = [glyphs.rule(title, width)]
    for each in verdict.related:
        own = each.kind == verdict.kind
        first, *rest = wrap(f"{each.kind}: {each.sign}", width - _INDENT - 1)
        sign = f" {glyphs.pointer if own else ' '} "
        rows.append((Span(sign, Tone.KEY), Span(first, Tone.PLAIN if own else Tone.DIM)))
        tone = Tone.PLAIN if own else Tone.DIM
        rows += [(Span(f"{'':{_INDENT + 2}}{line}", tone),) for line in rest]
    return rows
