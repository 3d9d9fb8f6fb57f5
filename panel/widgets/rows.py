"""A widget that paints rows of spans and repaints only those that differ."""

from __future__ import annotations

from collections.abc import Sequence

from rich.segment import Segment
from rich.style import Style
from textual.geometry import Region
from textual.strip import Strip
from textual.widget import Widget

from panel.logs.decode import clean
from panel.widgets.spans import BLANK, Row, Tone

TONES = {f"tone--{tone}" for tone in Tone} | {"tone--cursor"}
"""Component classes of every widget that paints spans."""


def strip(widget: Widget, row: Row, width: int, *, cursor: bool = False) -> Strip:
    """Return `row` in exactly `width` cells, styled by the component classes of `widget`."""
    over = Style()
    if cursor:
        over = Style(bgcolor=widget.get_component_rich_style("tone--cursor").bgcolor)
    segments = []
    for span in row:
        style = widget.get_component_rich_style(f"tone--{span.tone}")
        # Answers of models and words of engines may hold escape sequences: none reaches a terminal.
        text = span.text if span.text.isprintable() else clean(span.text.encode())
        segments.append(Segment(text, style if span.tone is Tone.HIT else style + over))
    ground = widget.get_component_rich_style("tone--plain") + over
    return Strip(segments).adjust_cell_length(width, ground).simplify()


class Rows(Widget):
    """Some rows, one of them under the cursor perhaps."""

    COMPONENT_CLASSES = TONES
    DEFAULT_CSS = "Rows { height: auto; }"

    def __init__(self, rows: Sequence[Row] = (), *, id: str | None = None) -> None:  # noqa: A002
        super().__init__(id=id)
        self.rows: tuple[Row, ...] = tuple(rows)
        self._cursor: int | None = None

    def show(self, rows: Sequence[Row], cursor: int | None = None) -> None:
        """Paint these rows; those that are as before are left alone."""
        before, self.rows = self.rows, tuple(rows)
        moved = {cursor, self._cursor} if cursor != self._cursor else set()
        self._cursor = cursor
        if len(before) != len(self.rows) and self.styles.is_auto_height:
            self.refresh(layout=True)
            return
        for y in range(max(len(before), len(self.rows))):
            if y in moved or _at(before, y) != _at(self.rows, y):
                self.refresh(Region(0, y, self.size.width, 1))

    @property
    def text(self) -> str:
        """What is shown, without tones."""
        return "\n".join("".join(span.text for span in row) for row in self.rows)

    def get_content_height(self, container: object, viewport: object, width: int) -> int:
        """Return one line a row."""
        return len(self.rows)

    def render_line(self, y: int) -> Strip:
        """Paint one row."""
        return strip(self, _at(self.rows, y), self.size.width, cursor=y == self._cursor)


def _at(rows: tuple[Row, ...], y: int) -> Row:
    return rows[y] if y < len(rows) else BLANK
