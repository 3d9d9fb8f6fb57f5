"""A list to choose one thing from, narrowed by typing: flags, profiles."""

from __future__ import annotations

from collections.abc import Callable
from typing import ClassVar, NamedTuple

from textual.app import ComposeResult
from textual.binding import Binding, BindingType
from textual.screen import ModalScreen
from textual.widgets import Input

from panel.widgets.field import Field
from panel.widgets.glyphs import Glyphs
from panel.widgets.rows import Rows
from panel.widgets.spans import Row, Span, Tone, cells, clip, fit


class Option(NamedTuple):
    """One line of the list."""

    name: str
    value: str
    note: str


class Choice(ModalScreen[str]):
    """Dismissed with the name chosen, or None."""

    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("escape", "cancel", show=False),
        Binding("up", "move(-1)", show=False),
        Binding("down", "move(1)", show=False),
        Binding("pageup", "move(-10)", show=False),
        Binding("pagedown", "move(10)", show=False),
    ]

    def __init__(self, title: str, find: Callable[[str], list[Option]], glyphs: Glyphs) -> None:
        """`find` returns the options that fit what was typed, best first."""
        super().__init__()
        self._title = title
        self._find = find
        self._glyphs = glyphs
        self._found = find("")
        self._cursor = 0

    def compose(self) -> ComposeResult:
        """Lay out title, filter, list and keys."""
        yield Rows([()], id="header")
        yield Field("type to search")
        yield Rows(id="options")
        yield Rows(
            [
                (
                    Span(" Enter", Tone.KEY),
                    Span(" choose  ", Tone.DIM),
                    Span("↑↓" if self._glyphs.braille else "up down", Tone.KEY),
                    Span(" move  ", Tone.DIM),
                    Span("Esc", Tone.KEY),
                    Span(" back", Tone.DIM),
                )
            ],
            id="keys",
        )

    def on_mount(self) -> None:
        """Start in the filter."""
        self.query_one(Input).focus()

    def on_resize(self) -> None:
        """Paint for the size."""
        self.call_after_refresh(self._paint)

    def on_input_changed(self, event: Input.Changed) -> None:
        """Narrow the list."""
        self._found, self._cursor = self._find(event.value), 0
        self._paint()

    def on_input_submitted(self) -> None:
        """Choose what the cursor stands on."""
        if self._found:
            self.dismiss(self._found[self._cursor].name)

    def action_move(self, by: int) -> None:
        """Move the cursor."""
        self._cursor = min(max(self._cursor + by, 0), max(len(self._found) - 1, 0))
        self._paint()

    def action_cancel(self) -> None:
        """Choose nothing."""
        self.dismiss(None)

    def _paint(self) -> None:
        options = self.query_one("#options", Rows)
        room = max(options.size.height, 1)
        first = max(min(self._cursor - room // 2, len(self._found) - room), 0)
        title = Span(f" {self._title}  ", Tone.BRIGHT)
        self.query_one("#header", Rows).show([(title, Span(str(len(self._found)), Tone.DIM))])
        shown = [self._row(option) for option in self._found[first : first + room]]
        options.show(shown or [(Span("   nothing fits", Tone.DIM),)], self._cursor - first)

    def _row(self, option: Option) -> Row:
        more = self._glyphs.more
        row = (
            Span(f" {fit(option.name, 31, more)} "),
            Span(f"{fit(option.value, 16, more)} ", Tone.BRIGHT),
        )
        return (*row, Span(clip(option.note, self.size.width - cells(row) - 1, more), Tone.DIM))
