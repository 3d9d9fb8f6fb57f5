"""Which lines of a log model a screenful shows. Pure: sizes and steps in, lines out.

A place is kept by the record that stands on top, never by a number: records may come and go in
front of it. Without one the page follows the end.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from dataclasses import dataclass
from typing import NamedTuple

from rich.cells import cell_len, chop_cells

from panel.logs.merge import place
from panel.logs.records import Record
from panel.widgets.log_model import LogModel

LONGEST = 4096
"""Characters of a line that wrapping shows; scrolling sideways reaches the rest."""

Place = tuple[float, str, int]


class PageLine(NamedTuple):
    """One line of the screen: a piece of a record."""

    at: int
    """Index in `LogModel.visible`."""
    part: int
    """0, or which continuation when the record is wrapped."""


@dataclass(slots=True)
class LogPage:
    """The window of a view onto its model."""

    model: LogModel
    width: int = 80
    """Cells that the text of a record has on one line."""
    height: int = 1
    wrap: bool = False
    left: int = 0
    """Cells scrolled sideways."""
    _top: Place | None = None
    _part: int = 0
    _seen: Place | None = None
    """The newest record at the time the page stopped following."""
    _found: Place | None = None

    @property
    def follows(self) -> bool:
        """Whether the page moves with the end of the log."""
        return self._top is None

    @property
    def news(self) -> int:
        """How many records came since the page stopped following."""
        if self._top is None or self._seen is None:
            return 0
        visible = self.model.visible
        return len(visible) - bisect_right(visible, self._seen, key=place)

    @property
    def found(self) -> tuple[int, int]:
        """Return which hit is selected, from 1, or 0, and how many there are."""
        hits = self.model.hits
        index = self._index(self._found) if self._found else -1
        at = bisect_left(hits, index)
        return (at + 1 if at < len(hits) and hits[at] == index else 0), len(hits)

    @property
    def found_index(self) -> int | None:
        """The record that the search stands on."""
        number, _ = self.found
        return self.model.hits[number - 1] if number else None

    def pieces(self, record: Record) -> list[str]:
        """Return the text of a record as the lines that it takes when wrapped."""
        text = record.text[:LONGEST]
        if text.isascii():
            return [text[at : at + self.width] for at in range(0, len(text), self.width)] or [""]
        return chop_cells(text, self.width)

    def lines(self) -> list[PageLine]:
        """Return what is on screen, from the top."""
        if not self.model.visible:
            return []
        line: PageLine | None = self._last_top() if self._top is None else self._first()
        shown: list[PageLine] = []
        while line is not None and len(shown) < self.height:
            shown.append(line)
            line = self._next(line)
        return shown

    def follow(self) -> None:
        """Go to the end and stay there."""
        self._top = self._seen = None

    def hold(self) -> None:
        """Stop following and stay here."""
        self._hold(self._last_top())

    def home(self) -> None:
        """Go to the oldest record held."""
        self._hold(PageLine(0, 0))

    def scroll(self, by: int) -> bool:
        """Move by lines, down where positive; at the end follow. Return false at the oldest."""
        if not self.model.visible:
            return by > 0
        end = self._last_top()
        line = end if self._top is None else self._first()
        for _ in range(abs(by)):
            step = self._next(line) if by > 0 else self._previous(line)
            if step is None:
                break
            line = step
        if by > 0 and line >= end:
            self.follow()
        elif by:
            self._hold(line)
        return by > 0 or line > (0, 0)

    def find(self, step: int) -> None:
        """Select the next hit (1) or the one before (-1), from the selected one or the page."""
        hits = self.model.hits
        if not hits:
            self._found = None
            return
        if self._found is not None:
            index = self._index(self._found)
            at = bisect_right(hits, index) if step > 0 else bisect_left(hits, index) - 1
        else:
            lines = self.lines()
            at = bisect_right(hits, lines[-1].at) - 1 if lines else 0
        index = hits[at % len(hits)]
        self._found = place(self.model.visible[index])
        if not any(line.at == index for line in self.lines()) or self._top is None:
            self._show(index)

    def forget_found(self) -> None:
        """Select no hit."""
        self._found = None

    def _show(self, index: int) -> None:
        line = PageLine(index, 0)
        for _ in range(self.height // 3):
            line = self._previous(line) or line
        self._hold(min(line, self._last_top()))

    def _hold(self, line: PageLine) -> None:
        visible = self.model.visible
        if visible:
            self._seen = self._seen or place(visible[-1])
            self._top, self._part = place(visible[line.at]), line.part

    def _index(self, at: Place) -> int:
        return bisect_left(self.model.visible, at, key=place)

    def _first(self) -> PageLine:
        assert self._top is not None
        index = self._index(self._top)
        if index >= len(self.model.visible):
            return self._last_top()
        return PageLine(index, min(self._part, self._parts(index) - 1))

    def _last_top(self) -> PageLine:
        """Return the line on top when the newest record is at the bottom."""
        last = len(self.model.visible) - 1
        line = PageLine(last, self._parts(last) - 1) if last >= 0 else PageLine(0, 0)
        for _ in range(self.height - 1):
            before = self._previous(line)
            if before is None:
                break
            line = before
        return line

    def _parts(self, index: int) -> int:
        if not self.wrap or index >= len(self.model.visible):
            return 1
        record = self.model.visible[index]
        if cell_len(record.text[:LONGEST]) <= self.width:
            return 1
        return len(self.pieces(record))

    def _next(self, line: PageLine) -> PageLine | None:
        if line.part + 1 < self._parts(line.at):
            return PageLine(line.at, line.part + 1)
        return PageLine(line.at + 1, 0) if line.at + 1 < len(self.model.visible) else None

    def _previous(self, line: PageLine) -> PageLine | None:
        if line.part:
            return PageLine(line.at, line.part - 1)
        if line.at:
            return PageLine(line.at - 1, self._parts(line.at - 1) - 1)
        return None
