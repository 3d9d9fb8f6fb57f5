"""Where a record of several lines begins. Pure.

Some engines print the prefix once for many lines, ours before every line: what belongs to a
traceback is seen by its form.
"""

from __future__ import annotations

from panel.logs.severity import TRACEBACK
from panel.logs.voices import LINKS, Piece


class Heads:
    """Reads the lines of one log in order."""

    def __init__(self) -> None:
        self._traced: set[tuple[int | None, int | None]] = set()
        """Who is in the middle of a traceback."""
        self._linked: set[tuple[int | None, int | None]] = set()
        """Who has said that one more traceback belongs to the last."""

    def begins(self, piece: Piece, *, follows: bool) -> bool:
        """Return whether a record begins here; `follows`: the line before was asked about too."""
        voice, text = (piece.rank, piece.pid), piece.text
        if TRACEBACK in text:
            begins = voice not in self._linked
            self._linked.discard(voice)
            self._traced.add(voice)
            return begins
        if text.startswith(LINKS):
            self._linked.add(voice)
            return False
        if not text.strip() or text.startswith(" "):
            return not follows and voice not in self._traced and bool(text.strip())
        if voice in self._traced:
            self._traced.discard(voice)  # The exception.
            return False
        return bool(piece.prefix) or not follows
