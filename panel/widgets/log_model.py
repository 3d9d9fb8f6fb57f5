"""The part of a launch's logs that a view holds: windows of several sources in one order.

Pure: windows go in, records come out. It starts with the tail of each source, follows growth,
and takes older windows in front; what it forgets at the old end can be asked for again.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Literal

from panel.domain.wire import LogWindow
from panel.logs.decode import decode
from panel.logs.merge import Arrivals, merge, place
from panel.logs.records import Record, RecordReader

At = int | Literal["tail"]

MOST = 50_000
"""Records held at most: some 25 MB."""


@dataclass(slots=True)
class _Source:
    start: int
    end: int
    reader: RecordReader
    arrivals: Arrivals
    unfinished: int | None = None
    """Offset of the last line while it has no newline: it is read again when it has grown."""


@dataclass(slots=True)
class LogModel:
    """Records of all sources, those picked, and where the searched text stands in them."""

    picked: frozenset[str] = frozenset()
    """Sources shown; empty shows all."""
    needle: str = ""
    records: list[Record] = field(default_factory=list)
    visible: list[Record] = field(default_factory=list)
    hits: list[int] = field(default_factory=list)
    """Indices in `visible` of records that contain the needle, ignoring case."""
    _sources: dict[str, _Source] = field(default_factory=dict)

    def clear(self) -> None:
        """Forget all records; what is picked and searched stays."""
        self._sources.clear()
        self.records, self.visible, self.hits = [], [], []

    def wanted(self, sizes: Mapping[str, int], tail: int) -> dict[str, At]:
        """Return the offsets to read from of sources that grew.

        A source that grew by more than `tail` bytes since it was read starts again at its tail.
        """
        wanted: dict[str, At] = {}
        for name, size in sizes.items():
            source = self._sources.get(name)
            if source is None or size - source.end > tail:
                wanted[name] = "tail"
            elif size > source.end:
                wanted[name] = source.end if source.unfinished is None else source.unfinished
        return wanted

    def add(self, windows: Iterable[LogWindow]) -> None:
        """Take windows that follow what is held, or tails that replace it."""
        streams = [self._read(window) for window in windows]
        fresh = list(merge(streams))
        if fresh:
            self._insert(fresh)
        self._forget()

    def older(self, chunk: int) -> dict[str, int]:
        """Return the offsets to read from for up to `chunk` bytes before what is held."""
        return {
            name: max(source.start - chunk, 0)
            for name, source in self._sources.items()
            if source.start > 0 and (not self.picked or name in self.picked)
        }

    def prepend(self, windows: Iterable[LogWindow]) -> None:
        """Take windows asked for by `older`."""
        streams = []
        for window in windows:
            source = self._sources[window.source]
            reader = RecordReader(window.source, Arrivals(window.times))
            lines = decode(window.text.encode(), window.offset)
            streams.append(reader.read(line for line in lines if line.offset < source.start))
            source.start = window.offset
        self.records = list(merge([*streams, self.records]))
        self._show(0)

    @property
    def empty(self) -> bool:
        """Whether nothing was read yet."""
        return not self._sources

    def pick(self, picked: frozenset[str]) -> None:
        """Show these sources only; none shows all."""
        self.picked = picked
        self._show(0)

    def search(self, needle: str) -> None:
        """Find text in what is visible, now and as it grows."""
        self.needle = needle.casefold()
        self.hits = []
        self._find(0)

    def _read(self, window: LogWindow) -> list[Record]:
        source = self._sources.get(window.source)
        if source is not None and source.start <= window.offset <= source.end:
            if window.offset < source.end:
                self._remove(window.source, window.offset)
        else:
            self._remove(window.source, 0)
            arrivals = Arrivals()
            reader = RecordReader(window.source, arrivals)
            source = _Source(window.offset, window.offset, reader, arrivals)
            self._sources[window.source] = source
        source.arrivals.extend(window.times)
        records = source.reader.read(decode(window.text.encode(), window.offset))
        source.end = window.end
        at_end = window.end >= window.size and not window.text.endswith("\n")
        source.unfinished = records[-1].offset if records and at_end else None
        return records

    def _remove(self, source: str, offset: int) -> None:
        kept = [r for r in self.records if r.source != source or r.offset < offset]
        if len(kept) != len(self.records):
            self.records = kept
            self._show(0)

    def _insert(self, fresh: list[Record]) -> None:
        """Add records, already in order, nearly always behind all others."""
        first = place(fresh[0])
        at = bisect_left(self.records, first, key=place)
        self.records[at:] = merge([self.records[at:], fresh])
        self._show(at, bisect_left(self.visible, first, key=place))

    def _forget(self) -> None:
        excess = len(self.records) - MOST
        if excess < MOST // 10:
            return
        gone, self.records = self.records[:excess], self.records[excess:]
        for name in {record.source for record in gone}:
            source = self._sources[name]
            kept = (record.offset for record in self.records if record.source == name)
            source.start = next(kept, source.end)
        self._show(0)

    def _show(self, record: int, visible: int = 0) -> None:
        """Fill `visible` again from an index of it, which stands for that index of `records`."""
        del self.visible[visible:]
        fresh = self.records[record:]
        self.visible += [r for r in fresh if not self.picked or r.source in self.picked]
        del self.hits[bisect_left(self.hits, visible) :]
        self._find(visible)

    def _find(self, start: int) -> None:
        if self.needle:
            self.hits += [
                index
                for index in range(start, len(self.visible))
                if self.needle in self.visible[index].text.casefold()
            ]
