"""A screen of rows that scrolls, for what is only read."""

from __future__ import annotations

from collections.abc import Iterable
from typing import ClassVar

from textual.app import ComposeResult
from textual.binding import BindingType
from textual.containers import VerticalScroll

from panel.screens.base import PanelScreen
from panel.screens.keys import BACK, key
from panel.screens.view import View
from panel.widgets.rows import Rows
from panel.widgets.spans import Row


class TextScreen(PanelScreen):
    """Subclasses paint the header in `show` and return the body from `rows`."""

    BINDINGS: ClassVar[list[BindingType]] = [
        BACK,
        key("up", "scroll(-1)", "up", "One line up", "text.up", "↑"),
        key("down", "scroll(1)", "down", "One line down", "text.down", "↓"),
        key("pageup", "scroll(-20)", "page up", "A screen up", "text.pageup", "PgUp"),
        key("pagedown", "scroll(20)", "page down", "A screen down", "text.pagedown", "PgDn"),
    ]

    def compose_body(self) -> ComposeResult:
        """Yield the body."""
        with VerticalScroll(can_focus=False):
            yield Rows(id="text")

    @property
    def text_width(self) -> int:
        """Cells of a row; the scroll bar takes one."""
        return self.size.width - 1

    def rows(self, view: View) -> Iterable[Row]:
        """Return the body's rows."""
        raise NotImplementedError

    def keys(self, view: View) -> Iterable[str]:
        """Offer scrolling."""
        return "text.up", "text.down", "text.pagedown", "back", "help"

    def show(self, view: View) -> None:
        """Paint the body."""
        self.query_one("#text", Rows).show(list(self.rows(view)))

    def action_scroll(self, lines: int) -> None:
        """Scroll the body."""
        self.query_one(VerticalScroll).scroll_relative(y=lines, animate=False)
