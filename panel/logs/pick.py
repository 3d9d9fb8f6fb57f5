"""Records at given offsets of a log, such as a search finds them, with lines around them."""

from __future__ import annotations

import itertools
from collections.abc import Iterable, Iterator

from panel.logs.context import Context, line_end
from panel.logs.decode import Line
from panel.logs.files import LogFile
from panel.logs.grammars import Dialect
from panel.logs.index import line_start
from panel.logs.records import Record, RecordReader

_BLOCK = 1 << 20
_AROUND = 1 << 16
"""Bytes before and behind a line that are held with it."""


class Picker:
    """Reads the records of one log at ascending offsets."""

    def __init__(self, file: LogFile, size: int, reader: RecordReader, dialect: Dialect) -> None:
        """`reader` is at its beginning, and reads nothing else."""
        self._file, self._size, self._reader, self._dialect = file, size, reader, dialect
        self._base, self._data = 0, b""
        self._context = Context(b"", dialect, self._read)

    def pick(self, offsets: Iterable[int], around: int = 0) -> Iterator[tuple[Record, bool]]:
        """Yield the records of the lines at `offsets`, each with True.

        With False come up to `around` lines before and behind, as far as some 64 KiB hold them; no
        line comes twice.
        """
        shown = -1
        for offset, following in itertools.pairwise(itertools.chain(offsets, (self._size,))):
            self._load(offset)
            at = offset - self._base
            before = [*self._before(at, around, shown)]
            behind = self._behind(at, around, following)
            for start in (*reversed(before), offset, *behind):
                for record in self._context.at(start - self._base):
                    yield record, start == offset
                shown = start

    def _before(self, at: int, lines: int, shown: int) -> Iterator[int]:
        for _ in range(lines):
            if at <= 0:
                return
            at = self._data.rfind(b"\n", 0, at - 1) + 1
            if self._base + at <= shown:
                return
            yield self._base + at

    def _behind(self, at: int, lines: int, following: int) -> Iterator[int]:
        for _ in range(lines):
            at = line_end(self._data, at) + 1
            if at >= len(self._data) or self._base + at >= following:
                return
            yield self._base + at

    def _load(self, offset: int) -> None:
        """Hold the line at `offset` whole, and some lines around it."""
        end = self._base + len(self._data)
        if self._data and offset >= self._base and (offset + _AROUND <= end or end == self._size):
            return
        self._base = line_start(self._file, max(offset - _AROUND, 0))
        self._data = self._file.read(self._base, min(offset + _BLOCK, self._size) - self._base)
        self._context = Context(self._data, self._dialect, self._read)

    def _read(self, line: Line) -> list[Record]:
        return self._reader.read((line._replace(offset=self._base + line.offset),))
