"""Help: one table of the keys of the screen that it was opened from."""

from __future__ import annotations

from collections.abc import Iterable
from itertools import groupby

from textual.binding import Binding

from panel.screens.base import PanelScreen
from panel.screens.keys import bindings_of
from panel.screens.text import TextScreen
from panel.screens.view import Desk, View
from panel.widgets.spans import BLANK, Row, Span, Tone, clipped, fit, wrap


def table(bindings: Iterable[Binding]) -> list[tuple[str, str]]:
    """Return key and sentence of each binding; neighbours that say the same are one line."""
    shown = [(binding.key_display or binding.key, binding.tooltip) for binding in bindings]
    return [pair for pair, _ in groupby(shown)]


class HelpScreen(TextScreen):
    """The keys of one screen, then those of all."""

    NAME = "help"

    def __init__(self, desk: Desk, screen: PanelScreen) -> None:
        super().__init__(desk)
        self._screen = screen

    def show(self, view: View) -> None:
        """Paint the table."""
        self.titled((Span(f"keys of the screen: {self._screen.NAME}", Tone.DIM),))
        super().show(view)

    def rows(self, view: View) -> Iterable[Row]:
        """Return a row a key."""
        own = table(bindings_of(self._screen))
        everywhere = table(bindings_of(self.app))
        yield BLANK
        yield from (self._row(key, sentence) for key, sentence in own)
        yield BLANK
        for note in self._screen.NOTES:
            yield from ((Span(f"  {line}"),) for line in wrap(note, self.text_width - 3))
            yield BLANK
        yield self.desk.glyphs.rule((Span("everywhere", Tone.BRIGHT),), self.text_width)
        yield from (self._row(key, sentence) for key, sentence in everywhere)
        yield BLANK
        yield self.desk.glyphs.rule((Span("signs", Tone.BRIGHT),), self.text_width)
        signs: list[Span] = [Span("  ")]
        for state in self.desk.glyphs.states:
            signs += [self.desk.glyphs.process(state), Span(f" {state.value}   ", Tone.DIM)]
        row = (*signs, Span("!", Tone.WARN), Span(" warning", Tone.DIM))
        yield clipped(row, self.text_width, self.desk.glyphs.more)

    def _row(self, key: str, sentence: str) -> Row:
        glyphs = self.desk.glyphs
        row = (Span(f"  {fit(glyphs.plain(key), 8)}", Tone.KEY), Span(sentence))
        return clipped(row, self.text_width, glyphs.more)
