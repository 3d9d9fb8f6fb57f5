"""The log view: paints the lines of a page, nothing that is off screen.

It scrolls by itself and not by Textual's `ScrollView`, whose virtual size would lay out the whole
screen again with each line that arrives.
"""

from __future__ import annotations

from rich.cells import cell_len, chop_cells
from textual import events
from textual.cache import LRUCache
from textual.strip import Strip
from textual.widget import Widget

from panel.logs.records import Level, Record
from panel.widgets.log_model import LogModel
from panel.widgets.log_page import LogPage, PageLine
from panel.widgets.rows import TONES, strip
from panel.widgets.spans import Row, Span, Tone, right
from panel.widgets.words import stamp

SIDEWAYS = 16
"""Cells that one key moves sideways."""

_TONES = {
    Level.DEBUG: Tone.DIM,
    Level.INFO: Tone.PLAIN,
    Level.WARNING: Tone.WARN,
    Level.ERROR: Tone.BAD,
}


class LogView(Widget):
    """Lines of several sources, merged by arrival, with the rank at the left."""

    COMPONENT_CLASSES = TONES

    def __init__(self, model: LogModel, *, id: str | None = None) -> None:  # noqa: A002
        super().__init__(id=id)
        self.model = model
        self.page = LogPage(model)
        self._lines: list[PageLine] = []
        self._strips: LRUCache[tuple[object, ...], Strip] = LRUCache(1000)

    def update(self) -> None:
        """Paint what the model and the page now say."""
        self._lines = self.page.lines()
        self.refresh()

    def notify_style_update(self) -> None:
        """Forget strips of the old colours."""
        self._strips.clear()
        super().notify_style_update()

    def on_resize(self, event: events.Resize) -> None:
        """Fit the page to the widget."""
        self.page.height = max(event.size.height, 1)
        self.page.width = max(event.size.width - self._gutter, 8)
        self._strips.clear()
        self.update()

    @property
    def _gutter(self) -> int:
        return 14 if self.size.width >= 60 else 4

    def on_mouse_scroll_up(self, event: events.MouseScrollUp) -> None:
        """Scroll towards older lines."""
        event.stop()
        self.page.scroll(-3)
        self.update()

    def on_mouse_scroll_down(self, event: events.MouseScrollDown) -> None:
        """Scroll towards newer lines."""
        event.stop()
        self.page.scroll(3)
        self.update()

    def render_line(self, y: int) -> Strip:
        """Paint one line."""
        width = self.size.width
        if y >= len(self._lines) or self._lines[y].at >= len(self.model.visible):
            return strip(self, (), width)
        line = self._lines[y]
        record = self.model.visible[line.at]
        found = line.at == self.page.found_index
        key = (
            record.source,
            record.offset,
            record.text,
            line.part,
            self.page.left,
            self.page.wrap,
            self.model.needle,
            found,
        )
        cached = self._strips.get(key)
        if cached is None:
            row = (*self._margin(record, line.part), *self._body(record, line.part))
            cached = self._strips[key] = strip(self, row, width, cursor=found)
        return cached

    def _margin(self, record: Record, part: int) -> Row:
        if part:
            return (Span(" " * self._gutter),)
        who = str(record.rank) if record.rank is not None else record.source[0]
        tone = Tone.DIM if record.level < Level.WARNING else _TONES[record.level]
        margin = Span(right(who, 3) + " ", tone)
        return (Span(f" {stamp(record.t)}", Tone.DIM), margin) if self._gutter > 4 else (margin,)

    def _body(self, record: Record, part: int) -> Row:
        tone = _TONES[record.level]
        if self.page.wrap:
            return _marked(self.page.pieces(record)[part], self.model.needle, tone)
        return _marked(_from(record.text, self.page.left, self.page.width), self.model.needle, tone)


def _from(text: str, left: int, width: int) -> str:
    """Return the cells of `text` that are visible after scrolling sideways."""
    text = text[: left + width + 1] if text.isascii() else text[: 2 * (left + width)]
    if not left:
        return text
    if text.isascii():
        return text[left:]
    return "".join(chop_cells(text, left)[1:]) if cell_len(text) > left else ""


def _marked(text: str, needle: str, tone: Tone) -> Row:
    """Return `text` with every occurrence of the needle marked."""
    folded = text.casefold()
    if not needle or len(folded) != len(text):
        return (Span(text, tone),)
    row, start = [], 0
    while (at := folded.find(needle, start)) >= 0:
        row += [Span(text[start:at], tone), Span(text[at : at + len(needle)], Tone.HIT)]
        start = at + len(needle)
    return (*row, Span(text[start:], tone))
