"""Which lines of the rows a screenful shows. Pure: sizes and steps in, lines out.

A place is kept by the row that stands on top, never by a number: rows may come and go in front of
it. Without one the page follows the end. One row is the current one: the last while it follows.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from dataclasses import dataclass, field
from typing import NamedTuple

from rich.cells import cell_len, chop_cells

from panel.logs.fold import Row
from panel.widgets.log_details import details
from panel.widgets.log_rows import LogRows
from panel.widgets.log_traces import RowPlace, row_place

LONGEST = 4096
"""Characters of a line that wrapping shows; scrolling sideways reaches the rest."""


class PageLine(NamedTuple):
    """One line of the screen: a piece of a row."""

    at: int
    """Index in `LogRows.visible`."""
    part: int
    """0, or which continuation when the row is wrapped or opened."""


@dataclass(slots=True)
class LogPage:
    """The window of a view onto its rows."""

    rows: LogRows = field(default_factory=LogRows)
    width: int = 80
    """Cells that the text of a row has on one line."""
    height: int = 1
    wrap: bool = False
    left: int = 0
    """Cells scrolled sideways."""
    _top: RowPlace | None = None
    _part: int = 0
    _seen: RowPlace | None = None
    """The newest row at the time the page stopped following."""
    _current: RowPlace | None = None

    @property
    def follows(self) -> bool:
        """Whether the page moves with the end of the log."""
        return self._top is None

    @property
    def news(self) -> int:
        """How many rows came since the page stopped following."""
        if self._top is None or self._seen is None:
            return 0
        visible = self.rows.visible
        return len(visible) - bisect_right(visible, self._seen, key=row_place)

    @property
    def current(self) -> Row | None:
        """The row that keys act on."""
        visible = self.rows.visible
        return visible[self.current_index] if visible else None

    @property
    def opens(self) -> bool:
        """Whether the current row has more to show, or shows all it has."""
        row = self.current
        if row is None:
            return False
        long = cell_len(row.text[:LONGEST]) > self.width and not self.wrap
        more = self.rows.frames(row) > 0 or long or row_place(row) in self.rows.opened
        return more or bool(details(row.text))

    @property
    def current_index(self) -> int:
        """Its index; that of the one behind it where it is gone."""
        last = len(self.rows.visible) - 1
        if self._top is None or self._current is None:
            return last
        return min(self._index(self._current), last)

    def text(self, row: Row) -> str:
        """Return the text of a row, with what is hidden below it."""
        frames = self.rows.frames(row)
        return f"{row.text}  … {frames} more, Enter" if frames else row.text

    def pieces(self, row: Row) -> list[str]:
        """Return the lines that a row takes when it is wrapped or opened."""
        text = self.text(row)[:LONGEST]
        pieces = self._wrapped(text)
        if row_place(row) in self.rows.opened:
            pieces += [piece for line in details(row.text) for piece in self._wrapped(line)]
        return pieces

    def is_whole(self, row: Row) -> bool:
        """Return whether all of a row is shown, on as many lines as it takes."""
        return self.wrap or row_place(row) in self.rows.opened

    def lines(self) -> list[PageLine]:
        """Return what is on screen, from the top."""
        if not self.rows.visible:
            return []
        line: PageLine | None = self._last_top() if self._top is None else self._first()
        shown: list[PageLine] = []
        while line is not None and len(shown) < self.height:
            shown.append(line)
            line = self._next(line)
        return shown

    def follow(self) -> None:
        """Go to the end and stay there."""
        self._top = self._seen = self._current = None

    def hold(self) -> None:
        """Stop following and stay here."""
        self._hold(self._last_top())

    def count_anew(self) -> None:
        """Take all rows there are for seen."""
        if self._top is not None and self.rows.visible:
            self._seen = row_place(self.rows.visible[-1])

    def home(self) -> None:
        """Go to the oldest row there is."""
        self._hold(PageLine(0, 0))
        self._select(0)

    def scroll(self, by: int) -> None:
        """Move by lines, down where positive; at the end follow. The current row stays in sight."""
        if not self.rows.visible or not by:
            return
        end = self._last_top()
        line = end if self._top is None else self._first()
        for _ in range(abs(by)):
            step = self._next(line) if by > 0 else self._previous(line)
            if step is None:
                break
            line = step
        if by > 0 and line >= end:
            self.follow()
            return
        current = self.current_index
        self._hold(line)
        shown = self.lines()
        self._select(min(max(current, shown[0].at), shown[-1].at))

    def move(self, by: int) -> None:
        """Move the current row; behind the last one follow."""
        visible = self.rows.visible
        if not visible:
            return
        index = self.current_index + by
        if index >= len(visible):
            self.follow()
        else:
            self.go(max(index, 0))

    def go(self, index: int, *, centre: bool = False) -> None:
        """Make a row the current one and bring it into sight, `centre`d where it was not."""
        shown = self.lines()
        inside = bool(shown) and shown[0].at <= index <= shown[-1].at
        if self._top is None:
            self.hold()
        if not inside or (shown[0].at == index and shown[0].part):
            line = PageLine(index, 0)
            if centre:
                line = self._back(line, self.height // 3)
            elif shown and index > shown[-1].at:
                line = self._back(PageLine(index, self._parts(index) - 1), self.height - 1)
            self._hold(min(line, self._last_top()))
        self._select(index)

    def _select(self, index: int) -> None:
        visible = self.rows.visible
        if visible:
            self._current = row_place(visible[index])

    def _hold(self, line: PageLine) -> None:
        visible = self.rows.visible
        if visible:
            if self._top is None:
                self._seen = row_place(visible[-1])
                self._current = self._current or self._seen
            self._top, self._part = row_place(visible[line.at]), line.part

    def _index(self, at: RowPlace) -> int:
        return bisect_left(self.rows.visible, at, key=row_place)

    def _first(self) -> PageLine:
        assert self._top is not None
        index = self._index(self._top)
        if index >= len(self.rows.visible):
            return self._last_top()
        return PageLine(index, min(self._part, self._parts(index) - 1))

    def _last_top(self) -> PageLine:
        """Return the line on top when the newest row is at the bottom."""
        last = len(self.rows.visible) - 1
        line = PageLine(last, self._parts(last) - 1) if last >= 0 else PageLine(0, 0)
        return self._back(line, self.height - 1)

    def _back(self, line: PageLine, lines: int) -> PageLine:
        for _ in range(lines):
            before = self._previous(line)
            if before is None:
                break
            line = before
        return line

    def _parts(self, index: int) -> int:
        if index >= len(self.rows.visible):
            return 1
        row = self.rows.visible[index]
        return len(self.pieces(row)) if self.is_whole(row) else 1

    def _wrapped(self, text: str) -> list[str]:
        if text.isascii():
            return [text[at : at + self.width] for at in range(0, len(text), self.width)] or [""]
        return chop_cells(text, self.width) if cell_len(text) > self.width else [text]

    def _next(self, line: PageLine) -> PageLine | None:
        if line.part + 1 < self._parts(line.at):
            return PageLine(line.at, line.part + 1)
        return PageLine(line.at + 1, 0) if line.at + 1 < len(self.rows.visible) else None

    def _previous(self, line: PageLine) -> PageLine | None:
        if line.part:
            return PageLine(line.at, line.part - 1)
        if line.at:
            return PageLine(line.at - 1, self._parts(line.at - 1) - 1)
        return None
