"""The logs of a scripted node: what `Client` says of texts that a test writes."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Iterable, Mapping
from dataclasses import replace
from itertools import accumulate

from panel.client import At
from panel.domain.errors import PanelError
from panel.domain.wire import Found, LogRecord, LogWindow, LogWindows, Moment
from panel.logs.decode import decode
from panel.logs.grammars import Dialect, detect
from panel.logs.merge import Arrivals
from panel.logs.query import Query
from panel.logs.records import RecordReader, rank_of
from panel.logs.scan import Scanner


class Logs:
    """Sources as texts; a line comes every `step_s`, or as `arrivals` say."""

    def __init__(self) -> None:
        self.texts: dict[str, str] = {}
        self.step_s = 0.5
        self.arrivals: dict[str, list[float]] = {}
        """When each line of a source arrived."""
        self.troubles: dict[str, str] = {}
        self.files: dict[str, int] = {}
        """Inodes."""
        self.breaks: PanelError | None = None
        """What ends every search."""
        self.asked: list[dict[str, At]] = []
        """The places of windows."""
        self.searched: list[tuple[int, Query, tuple[str, ...]]] = []
        self.world_size = 8
        self.crash_t: float | None = None
        self.folder = "/state/launches/000017"

    async def logs(self, launch: int, at: Mapping[str, At], limit: int) -> tuple[LogWindow, ...]:
        return (await self.log_windows(launch, at, limit)).windows

    async def log_windows(self, launch: int, at: Mapping[str, At], limit: int) -> LogWindows:
        self.asked.append(dict(at))
        places = at or dict.fromkeys(self.texts, "tail")
        return LogWindows(
            windows=tuple(self._window(source, place, limit) for source, place in places.items()),
            world_size=self.world_size,
            t0_unix=1_796_000_000.0,
            crash_t=self.crash_t,
            folder=self.folder,
        )

    async def log_records(
        self, launch: int, places: Iterable[tuple[str, int]]
    ) -> tuple[LogRecord, ...]:
        wanted = set(places)
        found = []
        for source in sorted({source for source, _ in wanted}):
            reader = RecordReader(source, Arrivals(self._times(source)), self._dialect(source))
            found += [
                LogRecord(source, r.offset, r.part, r.t, r.rank, r.level, r.prefix, r.text, r.pid)
                for line in decode(self._data(source))
                if (source, line.offset) in wanted
                for r in reader.read((line,))
            ]
        return tuple(found)

    async def search(
        self, launch: int, query: Query, sources: Iterable[str] = (), *, follow: bool = False
    ) -> AsyncIterator[Found]:
        self.searched.append((launch, query, tuple(sources)))
        wanted, ends = set(sources), dict[str, int]()
        while True:
            for source in self.texts:
                start = ends.get(source, 0)
                rank = rank_of(source)
                if (wanted or query.ranks) and source not in wanted:
                    if rank is not None and rank not in query.ranks:
                        continue
                    if wanted and not query.ranks:
                        continue
                if (end := len(self._data(source))) > start:
                    own = query if rank is None else replace(query, ranks=())
                    yield self._found(source, own, start, end)
                    ends[source] = end
            yield Found()
            if self.breaks is not None:
                raise self.breaks
            if not follow:
                return
            await asyncio.sleep(0.01)

    def _found(self, source: str, query: Query, start: int, end: int) -> Found:
        dialect, data = self._dialect(source), self._data(source)
        offsets = Scanner(query, dialect, rank_of(source)).scan(data[:end], 0, start)
        arrivals = Arrivals(self._times(source))
        times = tuple((arrivals.at(offset), 1) for offset in offsets)
        return Found(source=source, start=start, end=end, count=len(offsets),
                     offsets=tuple(offsets), times=times)  # fmt: skip

    def _data(self, source: str) -> bytes:
        return self.texts[source].encode()

    def _dialect(self, source: str) -> Dialect:
        own = source.startswith(("rank-", "frontend"))
        return Dialect() if own else detect(self.texts[source].splitlines())

    def _times(self, source: str) -> list[tuple[float, int]]:
        lines = self._data(source).splitlines(keepends=True)
        arrivals = self.arrivals.get(source) or [n * self.step_s for n in range(len(lines))]
        return [*zip(arrivals, accumulate(map(len, [b"", *lines])), strict=False)]

    def _window(self, source: str, at: At, limit: int) -> LogWindow:
        if source in self.troubles or source not in self.texts:
            trouble = self.troubles.get(source, f"there is no {source}.log")
            return LogWindow(source=source, offset=0, end=0, size=0, text="", trouble=trouble)
        data, times = self._data(source), self._times(source)
        if isinstance(at, Moment):
            at = max(next((o for t, o in times if t >= at.t), len(data)) - 1, 0)
        if isinstance(at, int):
            start = data.rfind(b"\n", 0, min(at, len(data))) + 1
        else:
            start = max(len(data) - limit, 0)
            if start and data[start - 1 : start] != b"\n":
                start = data.index(b"\n", start) + 1
        end = min(start + limit, len(data))
        if end < len(data):
            end = data.rfind(b"\n", start, end) + 1 or data.index(b"\n", start) + 1
        dialect = self._dialect(source)
        return LogWindow(
            source=source, offset=start, end=end, size=len(data), text=data[start:end].decode(),
            times=tuple(times), file=self.files.get(source, 1),
            dialect=() if dialect == Dialect() else dialect.names,
        )  # fmt: skip
