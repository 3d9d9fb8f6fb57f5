"""The log view: paints the lines of a page, nothing that is off screen.

It scrolls by itself and not by Textual's `ScrollView`, whose virtual size would lay out the whole
screen again with each line that arrives.
"""

from __future__ import annotations

from collections.abc import Sequence

from textual import events
from textual.cache import LRUCache
from textual.message import Message
from textual.strip import Strip
from textual.widget import Widget

from panel.widgets.log_look import Look
from panel.widgets.log_page import LogPage, PageLine
from panel.widgets.log_rows import LogRows
from panel.widgets.log_traces import row_place
from panel.widgets.rows import TONES, strip
from panel.widgets.spans import Row, Span

SIDEWAYS = 16
"""Cells that one key moves sideways."""


class LogView(Widget):
    """Rows of several sources, merged by arrival, with who said it at the left."""

    COMPONENT_CLASSES = TONES

    class Scrolled(Message):
        """The mouse wheel moved the page."""

    def __init__(self, rows: LogRows, look: Look, *, id: str | None = None) -> None:  # noqa: A002
        super().__init__(id=id)
        self.page = LogPage(rows)
        self.look = look
        self.column: Sequence[Span] = ()
        """What stands at the right edge, a sign a line; empty: nothing, and no room for it."""
        self._lines: list[PageLine] = []
        self._strips: LRUCache[tuple[object, ...], Strip] = LRUCache(1000)

    def update(self) -> None:
        """Paint what the rows, the page and the look now say."""
        width = self.size.width - bool(self.column)
        self.look.folds, self.look.world = self.page.rows.folds, self.page.rows.world
        self.page.width = max(width - self.look.margin_width(self.size.width), 8)
        self._lines = self.page.lines()
        self.refresh()

    def notify_style_update(self) -> None:
        """Forget strips of the old colours."""
        self._strips.clear()
        super().notify_style_update()

    def on_resize(self, event: events.Resize) -> None:
        """Fit the page to the widget."""
        self.page.height = max(event.size.height, 1)
        self.update()

    def on_mouse_scroll_up(self, event: events.MouseScrollUp) -> None:
        """Scroll towards older lines."""
        self._scroll(event, -3)

    def on_mouse_scroll_down(self, event: events.MouseScrollDown) -> None:
        """Scroll towards newer lines."""
        self._scroll(event, 3)

    def _scroll(self, event: events.MouseEvent, lines: int) -> None:
        event.stop()
        self.page.scroll(lines)
        self.update()
        self.post_message(self.Scrolled())

    def render_line(self, y: int) -> Strip:
        """Paint one line."""
        if not self.column:
            return self._line(y, self.size.width)
        end = self.column[y] if y < len(self.column) else Span(" ")
        return Strip.join([self._line(y, self.size.width - 1), strip(self, (end,), 1)])

    def _line(self, y: int, width: int) -> Strip:
        page, look = self.page, self.look
        visible = page.rows.visible
        if y >= len(self._lines) or self._lines[y].at >= len(visible):
            return strip(self, (), width)
        line = self._lines[y]
        row = visible[line.at]
        whole = page.is_whole(row)
        text = page.pieces(row)[line.part] if whole else page.text(row)
        current = not page.follows and line.at == page.current_index
        key = (
            row_place(row), row.ranks, row.missing, row.odd, text, line.part, page.left, current,
            row_place(row) in look.marks, width, look.key(),
        )  # fmt: skip
        cached = self._strips.get(key)
        if cached is None:
            margin: Row = (Span(" " * look.margin_width(self.size.width)),)
            if not line.part:
                margin = look.margin(row, self.size.width)
            body = look.body(row, text, 0 if whole else page.left, page.width)
            cached = self._strips[key] = strip(self, (*margin, *body), width, cursor=current)
        return cached
