"""A search in the logs of a launch: worker processes read, what they find goes out in pieces."""

from __future__ import annotations

import asyncio
import os
import time
from collections.abc import AsyncIterator, Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import NamedTuple

import msgspec

from panel.domain.errors import PanelError
from panel.domain.wire import ApiError, Found
from panel.logs.files import ReplacedError, open_regular
from panel.logs.query import Query
from panel.logs.search import PATIENCE_S, Search, SearchedLog
from panel.supervisor.arrivals import arrivals, offset_at, runs
from panel.supervisor.sources import Manner, Source

MOST_LISTED = 1_000_000
PAUSE_S = 0.25
"""How long a search that follows waits for growth; at least half of the time it rests."""
_LONGEST_BACK = 1 << 16


class Span(NamedTuple):
    """A range of time, ends included, in seconds since launch; None: no limit."""

    since: float | None = None
    until: float | None = None


class Hunt:
    """One query over some sources, each from its end backwards.

    All but `stop` is called from one thread.
    """

    def __init__(
        self,
        sources: Sequence[tuple[Source, Manner]],
        query: Query,
        span: Span = Span(),  # noqa: B008  (frozen)
        limit: int = MOST_LISTED,
        *,
        follows: bool = False,
        patience_s: float = PATIENCE_S,
    ) -> None:
        """`limit`: offsets listed at most, besides those in what grows later.

        `follows`: what grows later is searched too, so that a last line must be whole.
        """
        self._sources = sources
        self._query, self._span, self._limit = query, span, limit
        self._follows, self._patience_s = follows, patience_s
        self._files: list[_File] = []
        self._search: Search | None = None
        self._stopped = False

    def all(self) -> Iterator[Found]:
        """Yield what is there, the pieces of all sources in turn. Raises what `Search` raises."""
        self._files = [_File.of(source, self._follows) for source, _ in self._sources]
        self._search = self._start()
        spans = [self._offsets(number) for number in range(len(self._sources))]
        left = sum(end - start for start, end in spans)
        room = self._limit
        turns = [self._pieces(number, *span) for number, span in enumerate(spans)]
        while turns:
            for turn in [*turns]:
                found = next(turn, None)
                if found is None:
                    turns.remove(turn)
                    continue
                left -= found.end - found.start
                room = room - found.count if found.count <= room else -1
                if room < 0:
                    found = msgspec.structs.replace(found, offsets=(), times=())
                yield msgspec.structs.replace(found, left=left)

    def growth(self) -> Iterator[Found]:
        """Yield what has come since. Raises `ReplacedError` where a log is another one by now."""
        for number, (source, _) in enumerate(self._sources):
            before, now = self._files[number], _File.of(source, self._follows)
            if before.inode and (now.inode != before.inode or now.size < before.size):
                raise ReplacedError(f"{source.name} was replaced or shrank", "search again")
            self._files[number] = now
            if now.end > before.end:
                yield from self._pieces(number, before.end, now.end)

    def stop(self) -> None:
        """Kill the workers; from any thread."""
        self._stopped = True
        if self._search is not None:
            self._search.stop()

    def close(self) -> None:
        """Leave nothing behind."""
        if self._search is not None:
            self._search.__exit__()

    def _start(self) -> Search:
        logs = [
            SearchedLog(source.name, source.path, file.end, *manner, source.holes)
            for (source, manner), file in zip(self._sources, self._files, strict=True)
        ]
        return Search(logs, self._query, patience_s=self._patience_s)

    def _offsets(self, number: int) -> tuple[int, int]:
        times, end = self._sources[number][0].times, self._files[number].end
        since, until = self._span
        start = 0 if since is None else offset_at(times, since)
        # What arrives at the same moment as its last byte counts.
        last = None if until is None else offset_at(times, until + 1e-6)
        return min(end if start is None else start, end), end if last is None else min(last, end)

    def _pieces(self, number: int, start: int, end: int) -> Iterator[Found]:
        source, _ = self._sources[number]
        assert self._search is not None
        if self._stopped:
            self._search.stop()
        for start_, end_, offsets in self._search.newest(number, start, end):
            pairs = [*arrivals(source.times, start_, end_)] if offsets else []
            yield Found(
                source=source.name,
                start=start_,
                end=end_,
                count=len(offsets),
                offsets=tuple(offsets),
                times=runs(offsets, pairs) if offsets else (),
            )


class _File(NamedTuple):
    """What is known of a log between two looks."""

    inode: int
    size: int
    end: int
    """Up to where it is searched."""

    @classmethod
    def of(cls, source: Source, whole_lines: bool) -> _File:
        """Look at it; one that does not exist yet is empty."""
        try:
            with open_regular(source.path) as file:
                status = os.fstat(file.fileno())
                end = size = status.st_size
                if whole_lines and size:
                    start = max(size - _LONGEST_BACK, 0)
                    end = start + os.pread(file.fileno(), size - start, start).rfind(b"\n") + 1
        except OSError:
            return cls(0, 0, 0)
        return cls(status.st_ino, size, end)


async def stream(hunt: Hunt, closed: Callable[[], bool] | None = None) -> AsyncIterator[bytes]:
    """Yield the answer line by line; with `closed` it follows until that is true.

    Whoever lets go of it ends the search at once, also in the middle of a regular expression.
    """
    loop = asyncio.get_running_loop()
    thread = ThreadPoolExecutor(1, "search")
    try:
        pieces = hunt.all()
        began = time.monotonic()
        while (found := await loop.run_in_executor(thread, next, pieces, None)) is not None:
            yield _line(found)
        yield _line(Found())
        while closed is not None and not closed():
            await asyncio.sleep(max(PAUSE_S, time.monotonic() - began))
            began = time.monotonic()
            pieces = hunt.growth()
            while (found := await loop.run_in_executor(thread, next, pieces, None)) is not None:
                yield _line(found)
    except PanelError as error:
        told = ApiError(
            kind=error.kind, message=error.message, hint=error.hint, exit=error.exit_code
        )
        yield _line(Found(error=told))
    finally:
        hunt.stop()
        thread.submit(hunt.close)
        thread.shutdown(wait=False)


def _line(found: Found) -> bytes:
    return msgspec.json.encode(found) + b"\n"
