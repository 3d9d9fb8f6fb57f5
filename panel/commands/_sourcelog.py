"""One log as records: all that is there and what is new each time, or what a search found."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

from panel.logs.decode import LineDecoder
from panel.logs.files import LogFile, open_log
from panel.logs.grammars import Dialect
from panel.logs.grammars.native import PLAIN
from panel.logs.holes import Hole, kept, parse_holes
from panel.logs.merge import Arrivals, parse_times
from panel.logs.pick import Picker
from panel.logs.records import Record, RecordReader, survey
from panel.logs.search import Search, SearchedLog

_CHUNK = 1 << 16
_SURVEYED = 1 << 20


class Paths(NamedTuple):
    """Where a source is."""

    source: str
    log: Path
    times: Path | None = None
    """When its bytes arrived; None where nobody noted."""
    holes: Path | None = None


class SourceLog:
    """A log that may still grow; read while open, as a context manager."""

    def __init__(self, paths: Paths) -> None:
        """Open it. Raises what `open_log` raises."""
        self._paths = paths
        self.arrivals = Arrivals()
        self._times = _Lines(paths.times)
        self._begin()

    def _begin(self) -> None:
        self._file: LogFile = open_log(self._paths.log)
        self._position = 0
        self._decoder = LineDecoder()
        self._dialect = Dialect(PLAIN)
        self._reader = RecordReader(self.source, self.arrivals, self._dialect)

    def reopen(self) -> None:
        """Begin again with the file that has its name now. Raises what `open_log` raises."""
        self._file.close()
        self._begin()

    @property
    def source(self) -> str:
        """Its name."""
        return self._paths.source

    def __enter__(self) -> SourceLog:
        return self

    def __exit__(self, *_: object) -> None:
        self._file.close()

    def records(self) -> Iterator[Record]:
        """Yield the new whole lines; what arrives meanwhile is left for the next call.

        Raises `ReplacedError` where it is another log by now.
        """
        # The size first: every byte below it has its arrival time in the file by then.
        size = self._file.size()
        self.arrivals.extend(parse_times(self._times.read()))
        if self._dialect.grammar is PLAIN and self._position < min(size, _SURVEYED):
            # The first lines of a launch often are not the engine's.
            self._dialect, ranks = self._survey()
            self._reader = RecordReader(self.source, self.arrivals, self._dialect, ranks)
        for start, end in kept(self._position, size, self._holes()):
            if start > self._position:
                yield from self.rest()
                self._decoder = LineDecoder(start)
            self._position = start
            while chunk := self._file.read(self._position, min(_CHUNK, end - self._position)):
                self._position += len(chunk)
                yield from self._reader.read(self._decoder.feed(chunk))

    def rest(self) -> list[Record]:
        """Return the last line where it never got a newline."""
        partial = self._decoder.partial
        return self._reader.read([partial]) if partial else []

    def searched(self) -> SearchedLog:
        """Return what a search must know of it, as it is now."""
        size = self._file.size()
        self.arrivals.extend(parse_times(self._times.read()))
        dialect, ranks = self._survey()
        return SearchedLog(self.source, self._paths.log, size, dialect, ranks, self._holes())

    def found(
        self, search: Search, number: int, log: SearchedLog, span: tuple[int, int], around: int
    ) -> Iterator[tuple[Record, bool]]:
        """Yield what `search` finds in this log, its number `number`, between two offsets, and
        lines `around` each, which are no hits: False."""
        reader = RecordReader(self.source, self.arrivals, log.dialect, log.ranks)
        picker = Picker(self._file, log.size, reader, log.dialect)
        hits = (offset for piece in search.hits(number, *span) for offset in piece)
        return picker.pick(hits, around)

    def _survey(self) -> tuple[Dialect, dict[int, int]]:
        return survey(self.source, self._file.read(0, _SURVEYED))

    def _holes(self) -> tuple[Hole, ...]:
        with contextlib.suppress(OSError):
            return parse_holes(self._paths.holes.read_bytes()) if self._paths.holes else ()
        return ()


class _Lines:
    def __init__(self, path: Path | None) -> None:
        self._path = path
        self._position = 0

    def read(self) -> bytes:
        """Return the whole lines that are new."""
        if self._path is None:
            return b""
        try:
            with self._path.open("rb") as file:
                file.seek(self._position)
                data = file.read()
        except OSError:
            return b""
        whole = data[: data.rfind(b"\n") + 1]
        self._position += len(whole)
        return whole
