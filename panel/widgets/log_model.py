"""The part of a launch's logs that a view holds: windows of several sources in one order.

Pure: windows go in, records come out. A window of each source, grown at either end; what lies
between the latest beginning and the earliest end is complete, and only that is shown. What is
forgotten can be asked for again.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Literal

from panel.domain.wire import LogWindow, Moment
from panel.logs.decode import decode
from panel.logs.grammars import Dialect, named
from panel.logs.merge import Arrivals, merge, place
from panel.logs.records import Level, Record, RecordReader, rank_of
from panel.widgets.words import size as size_words

At = int | Moment | Literal["tail"]
Place = tuple[float, str, int]
Picked = frozenset[int | str]
"""Ranks and sources; nothing means all."""

MOST = 12_000
"""Records held at most: some 6 MB."""
_NEAR_S = 1.0
"""Sources that begin or end so near to the latest beginning or earliest end grow with it."""


@dataclass(slots=True)
class _Source:
    name: str
    file: int
    start: int
    end: int
    size: int
    since: Place
    """From here on it is complete."""
    until: Place
    """Up to here it is complete: what it says later arrives later."""
    dialect: Dialect
    arrivals: Arrivals
    reader: RecordReader
    unfinished: int | None = None
    """Offset of the last line while it has no newline: it is read again when it has grown."""
    lost: bool = False
    """It cannot be read at present: nobody waits for it."""

    @property
    def lacks_newer(self) -> bool:
        return self.end < self.size and not self.lost

    def new_reader(self) -> RecordReader:
        """Return a reader for lines that do not follow what was read."""
        return RecordReader(self.name, self.arrivals, self.dialect, self.reader.ranks)


@dataclass(slots=True)
class LogModel:
    """Records of all sources, sorted; `complete` are those that a view may show."""

    picked: Picked = frozenset()
    """Whose older and newer text is asked for."""
    records: list[Record] = field(default_factory=list)
    notes: dict[str, str] = field(default_factory=dict)
    """What is wrong with a source, in words."""
    _sources: dict[str, _Source] = field(default_factory=dict)

    def clear(self) -> None:
        """Forget all records; what is picked stays."""
        self._sources.clear()
        self.notes.clear()
        self.records = []

    @property
    def empty(self) -> bool:
        """Whether nothing was read yet."""
        return not self._sources

    @property
    def full(self) -> bool:
        """Whether more at one end costs the other end."""
        return len(self.records) >= MOST

    @property
    def names(self) -> list[str]:
        """The sources of which anything was read."""
        return [*self._sources]

    @property
    def complete(self) -> list[Record]:
        """The records between which no other is missing; where the windows of the sources have no
        time in common, as in a storm, all from the latest beginning on."""
        picked = [source for source in self._sources.values() if self._is_picked(source.name)]
        low = max((s.since for s in picked if s.start > 0), default=None)
        high = min((s.until for s in picked if s.lacks_newer), default=None)
        first = bisect_left(self.records, low, key=place) if low else 0
        last = bisect_right(self.records, high, key=place) if high else len(self.records)
        last = last if last > first else len(self.records)
        return self.records[first:last] if first or last < len(self.records) else self.records

    @property
    def behind(self) -> int:
        """Bytes that lie behind what is held."""
        return sum(s.size - s.end for s in self._sources.values() if self._is_picked(s.name))

    def grown(self, sizes: Mapping[str, int]) -> None:
        """Take note of how long the logs are now; a source that is missing has lost its log."""
        for name, source in self._sources.items():
            if name in sizes:
                source.size = max(sizes[name], source.end)
            elif source.end:
                source.lost = True
                self.notes[name] = f"{name} has lost its log: what it writes now is not to be seen"

    def wanted(self, sizes: Mapping[str, int], tail: int) -> dict[str, At]:
        """Return the places to read from of sources that grew.

        A source that grew by more than `tail` bytes since it was read starts again at its tail, and
        so does one that shrank.
        """
        wanted: dict[str, At] = {}
        for name, size in sizes.items():
            source = self._sources.get(name)
            if source is None or size < source.end or size - source.end > tail:
                wanted[name] = "tail"
            elif size > source.end:
                wanted[name] = source.end if source.unfinished is None else source.unfinished
        return wanted

    def older(self, chunk: int) -> dict[str, At]:
        """Return where to read up to `chunk` bytes before what is held, of the sources that hide
        what is older."""
        lacking = [s for s in self._sources.values() if s.start > 0 and self._is_picked(s.name)]
        latest = max((s.since[0] for s in lacking), default=0.0)
        return {s.name: max(s.start - chunk, 0) for s in lacking if s.since[0] >= latest - _NEAR_S}

    def newer(self) -> dict[str, At]:
        """Return where to read on, of the sources that hide what is newer."""
        lacking = [s for s in self._sources.values() if s.lacks_newer and self._is_picked(s.name)]
        earliest = min((s.until[0] for s in lacking), default=0.0)
        return {
            s.name: s.end if s.unfinished is None else s.unfinished
            for s in lacking
            if s.until[0] <= earliest + _NEAR_S
        }

    def add(self, windows: Iterable[LogWindow]) -> None:
        """Take windows that follow what is held, or take its place."""
        taken = [window for window in windows if self._may_read(window)]
        fresh = list(merge([self._read(window) for window in taken]))
        if fresh:
            at = bisect_left(self.records, place(fresh[0]), key=place)
            self.records[at:] = merge([self.records[at:], fresh])
            for window in taken:
                if window.end >= window.size:
                    source = self._sources[window.source]
                    source.until = max(source.until, place(self.records[-1]))
        if len(self.records) > MOST + MOST // 10:
            self._forget_oldest(len(self.records) - MOST)

    def prepend(self, windows: Iterable[LogWindow]) -> None:
        """Take windows asked for by `older`."""
        streams = []
        for window in windows:
            source = self._sources.get(window.source)
            if source is None or not self._may_read(window) or window.file != source.file:
                continue
            reader = RecordReader(
                source.name, Arrivals(window.times), source.dialect, source.reader.ranks
            )
            lines = decode(window.text.encode(), window.offset)
            before = [line for line in lines if line.offset < source.start]
            records = [*_hole(window), *reader.read(before)]
            source.start = window.offset
            source.since = place(records[0]) if records else source.since
            streams.append(records)
        self.records = list(merge([*streams, self.records]))
        if len(self.records) > MOST + MOST // 10:
            self._forget_newest(len(self.records) - MOST)

    def _is_picked(self, name: str) -> bool:
        """Whether records that are picked may stand in this source."""
        rank = rank_of(name)
        if not self.picked or name in self.picked or rank in self.picked:
            return True
        return rank is None and any(isinstance(picked, int) for picked in self.picked)

    def _may_read(self, window: LogWindow) -> bool:
        self.notes.pop(window.source, None)
        if window.trouble:
            self.notes[window.source] = window.trouble
        if window.source in self._sources:
            self._sources[window.source].lost = bool(window.trouble)
        return not window.trouble

    def _read(self, window: LogWindow) -> list[Record]:
        source = self._sources.get(window.source)
        if source and (source.file != window.file or window.size < source.end):
            self.notes[window.source] = f"the log of {window.source} is another one than before"
            source = None
        if source and source.start <= window.offset - window.skipped <= source.end:
            if window.offset < source.end:
                self._remove(window.source, window.offset)
        else:
            self._remove(window.source, 0)
            source = self._sources[window.source] = _begin(window)
        source.arrivals.extend(window.times)
        lines = decode(window.text.encode(), window.offset)
        records = [*_hole(window), *source.reader.read(lines)]
        source.end, source.size = window.end, max(window.size, source.size)
        at_end = window.end >= window.size and not window.text.endswith("\n")
        source.unfinished = records[-1].offset if records and at_end else None
        if records:
            source.until = place(records[-1])
        return records

    def _remove(self, source: str, offset: int) -> None:
        self.records = [r for r in self.records if r.source != source or r.offset < offset]

    def _forget_oldest(self, count: int) -> None:
        gone, self.records = self.records[:count], self.records[count:]
        for record, behind in _lines(gone, self.records):
            source = self._sources[record.source]
            source.start = source.end if behind is None else behind.offset
            source.since = (record.t, record.source, source.start)

    def _forget_newest(self, count: int) -> None:
        gone, self.records = self.records[-count:], self.records[:-count]
        for record in {record.source: record for record in reversed(gone)}.values():
            # A line of which a part stays is read again from its beginning.
            source = self._sources[record.source]
            self.records = [
                r for r in self.records if r.source != source.name or r.offset < record.offset
            ]
            source.end, source.unfinished = record.offset, None
            source.until = (record.t, record.source, record.offset - 1)
            source.reader = source.new_reader()


def _lines(gone: list[Record], kept: list[Record]) -> list[tuple[Record, Record | None]]:
    """Return the last record gone of each source, and the first one kept."""
    last = {record.source: record for record in gone}
    first: dict[str, Record] = {}
    for record in kept:
        if len(first) == len(last):
            break
        if record.source in last:
            first.setdefault(record.source, record)
    return [(record, first.get(name)) for name, record in last.items()]


def _begin(window: LogWindow) -> _Source:
    dialect = named(window.dialect) if window.dialect else Dialect()
    arrivals = Arrivals(window.times)
    reader = RecordReader(window.source, arrivals, dialect, window.pids)
    since = (arrivals.at(window.offset), window.source, window.offset)
    return _Source(
        window.source, window.file, window.offset, window.offset, window.size, since, since,
        dialect, arrivals, reader,
    )  # fmt: skip


def _hole(window: LogWindow) -> list[Record]:
    """Return a record that stands for what was punched out before a window."""
    if not window.skipped:
        return []
    return [
        Record(
            source=window.source,
            rank=rank_of(window.source),
            t=Arrivals(window.times).at(window.offset),
            printed=None,
            level=Level.WARNING,
            prefix="",
            text=f"{size_words(window.skipped)} are gone here: the log grew too long to keep",
            offset=window.offset - 1,
            phase=None,
        )
    ]
