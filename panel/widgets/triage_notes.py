"""What operators wrote about a launch. Pure."""

from __future__ import annotations

from collections.abc import Iterable
from datetime import datetime

from panel.domain.notes import Note
from panel.widgets.glyphs import Glyphs
from panel.widgets.spans import Row, Span, Tone, wrap

_INDENT = 13


def note_rows(notes: Iterable[Note], width: int, glyphs: Glyphs) -> list[Row]:
    """Return the section, the oldest note first; nothing without notes."""
    rows: list[Row] = []
    for note in notes:
        first, *rest = wrap(note.text, width - _INDENT - 1) or [""]
        rows.append((Span(f" {when(note):<{_INDENT - 1}}", Tone.DIM), Span(first)))
        rows += [(Span(f"{'':{_INDENT}}{line}"),) for line in rest]
    return [glyphs.rule((Span("notes", Tone.BRIGHT),), width), *rows] if rows else []


def when(note: Note) -> str:
    """Return the day and minute at which a note was written, in the time of this place."""
    return f"{datetime.fromtimestamp(note.t_unix):%m-%d %H:%M}"
