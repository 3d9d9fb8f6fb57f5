"""The log view: paints the lines of a page, nothing that is off screen.

It scrolls by itself and not by Textual's `ScrollView`, whose virtual size would lay out the whole
screen again with each line that arrives.
"""

from __future__ import annotations

from collections.abc import Sequence

from textual import events
from textual.cache import LRUCache
from textual.geometry import Region
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
        self._keys: list[tuple[object, ...]] = []
        """What each line looked like when it was last painted."""
        self._strips: LRUCache[tuple[object, ...], Strip] = LRUCache(1000)

    def update(self) -> None:
        """Paint what the rows, the page and the look now say."""
        width = self.size.width - bool(self.column)
        self.look.folds, self.look.world = self.page.rows.folds, self.page.rows.world
        self.page.width = max(width - self.look.margin_width(self.size.width), 8)
        self._lines = self.page.lines()
        before, self._keys = self._keys, [self._key(y) for y in range(self.size.height)]
        for y, key in enumerate(self._keys):
            if y >= len(before) or before[y] != key:
                self.refresh(Region(0, y, self.size.width, 1))

    def notify_style_update(self) -> None:
        """Forget strips of the old colours."""
        self._strips.clear()
        self._keys.clear()
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
        width = self.size.width - bool(self.column)
        key = self._key(y)
        painted = self._strips.get(key)
        if painted is None:
            painted = self._strips[key] = self._strip(y, width)
        if not self.column:
            return painted
        return Strip.join([painted, strip(self, (self._sign(y),), 1)])

    def _sign(self, y: int) -> Span:
        return self.column[y] if y < len(self.column) else Span(" ")

    def _key(self, y: int) -> tuple[object, ...]:
        """Return all that the looks of a line depend on."""
        page = self.page
        visible = page.rows.visible
        if y >= len(self._lines) or self._lines[y].at >= len(visible):
            return (self.size.width, self._sign(y))
        line = self._lines[y]
        row = visible[line.at]
        place = row_place(row)
        return (
            place, row.ranks, row.missing, row.odd, line.part, page.text(row), page.is_whole(row),
            page.left, not page.follows and line.at == page.current_index,
            place in self.look.marks, self.size.width, page.width, self._sign(y), self.look.key(),
        )  # fmt: skip

    def _strip(self, y: int, width: int) -> Strip:
        page, look = self.page, self.look
        visible = page.rows.visible
        if y >= len(self._lines) or self._lines[y].at >= len(visible):
            return strip(self, (), width)
        line = self._lines[y]
        row = visible[line.at]
        whole = page.is_whole(row)
        text = page.pieces(row)[line.part] if whole else page.text(row)
        margin: Row = (Span(" " * look.margin_width(self.size.width)),)
        if not line.part:
            margin = look.margin(row, self.size.width)
        body = look.body(row, text, 0 if whole else page.left, page.width)
        current = not page.follows and line.at == page.current_index
        return strip(self, (*margin, *body), width, cursor=current)
