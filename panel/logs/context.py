"""Lines here and there of a log, read as if all lines before had been read too."""

from __future__ import annotations

from collections.abc import Callable
from typing import Generic, TypeVar

from panel.logs.decode import Line, to_line
from panel.logs.grammars import Dialect
from panel.logs.grammars.wrappers import strip

LINES_BACK = 200
"""How far back the head of a record is looked for."""

T = TypeVar("T")


class Context(Generic[T]):
    """Reads single lines of `data`, with what their record's first lines say of them."""

    def __init__(self, data: bytes, dialect: Dialect, read: Callable[[Line], list[T]]) -> None:
        """`read` makes of a line what is wanted; it remembers the lines before, as `Voices` do."""
        self._data, self._dialect, self._read = data, dialect, read
        self._next = 0
        self._last: tuple[int, list[T]] = (-1, [])

    def at(self, start: int) -> list[T]:
        """Return what the line that begins at `start` is; ask for lines in ascending order."""
        if self._last[0] == start:
            return self._last[1]
        before = self._head(start)
        while before < start:
            self._read(line_at(self._data, before))
            before = line_end(self._data, before) + 1
        self._last = start, self._read(line_at(self._data, start))
        self._next = line_end(self._data, start) + 1
        return self._last[1]

    def _head(self, start: int) -> int:
        """Return where reading must begin: the last line with a prefix, or the first not read."""
        at = start
        for _ in range(LINES_BACK):
            if at <= self._next:
                return min(self._next, start)
            text = line_at(self._data, at).text
            prefix = self._dialect.grammar(text[strip(text, self._dialect.wrappers).end :])
            if prefix is not None and prefix.end > 0 and prefix.logged:
                return at
            at = self._data.rfind(b"\n", 0, at - 1) + 1
        return max(at, self._next)


def line_at(data: bytes, start: int) -> Line:
    """Return the line of `data` that begins at `start`; its offset is that in `data`."""
    return to_line(start, data[start : line_end(data, start)])


def line_end(data: bytes, start: int) -> int:
    """Return where the line that begins at `start` ends: its newline, or the end of `data`."""
    end = data.find(b"\n", start)
    return len(data) if end < 0 else end
