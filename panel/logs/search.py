"""Search in logs by processes that can be killed, because nothing else stops a regular expression.

    with Search([searchable("engine", path)], query) as search:
        for offsets in search.hits(0): ...

Pieces of a log go to the workers in turn, so that hits come in the order of the log and the first
ones at once.
"""

from __future__ import annotations

import contextlib
import json
import os
import signal
import subprocess
import sys
from array import array
from collections import deque
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import NamedTuple, NoReturn

from panel.domain.errors import PanelError, UsageError
from panel.domain.exits import exit_words
from panel.logs.files import open_log
from panel.logs.grammars import Dialect
from panel.logs.holes import Hole, kept
from panel.logs.query import Query
from panel.logs.records import rank_of, survey
from panel.logs.worker import FRAME

WORKERS = 2
PATIENCE_S = 5.0
"""Processor time for one piece; a sane pattern takes milliseconds."""
PIECE = 1 << 21
_FIRST_PIECE = 1 << 18
_SURVEYED = 1 << 20
_BOOT = "import sys; sys.path.insert(0, sys.argv[1]); from panel.logs.worker import main; main()"
_KEEPS_MEMORY = {
    "MALLOC_MMAP_THRESHOLD_": str(1 << 26),
    "MALLOC_TRIM_THRESHOLD_": str(1 << 28),
}
"""glibc would give the memory of each piece back and fault it in again: half of all time."""
_ROOT = str(Path(__file__).parents[2])


class StoppedError(PanelError):
    """The search was stopped from elsewhere."""

    kind = "stopped"


class SearchedLog(NamedTuple):
    """One log to search, and what is known of it."""

    source: str
    path: Path
    size: int
    dialect: Dialect = Dialect()
    ranks: Mapping[int, int] = {}
    """By pid."""
    holes: Sequence[Hole] = ()


class Found(NamedTuple):
    """What one piece of a log holds."""

    start: int
    end: int
    offsets: array[int]
    """Ascending."""


def searchable(source: str, path: Path, holes: Sequence[Hole] = ()) -> SearchedLog:
    """Look at a log as it is now. Raises what `open_log` raises."""
    file = open_log(path)
    try:
        dialect, ranks = survey(source, file.read(0, _SURVEYED))
        return SearchedLog(source, path, file.size(), dialect, ranks, holes)
    finally:
        file.close()


class Search:
    """One query over some logs; a context manager that leaves no process behind."""

    def __init__(
        self,
        logs: Sequence[SearchedLog],
        query: Query,
        workers: int = WORKERS,
        patience_s: float = PATIENCE_S,
    ) -> None:
        """Start the workers. Raises `UsageError` where the pattern is none."""
        query.compile()
        self._logs = logs
        self._patience_s = patience_s
        order = {
            "patience_s": patience_s,
            "query": query.to_json(),
            "logs": [
                {
                    "path": str(log.path.absolute()),
                    "dialect": log.dialect.names,
                    "rank": rank_of(log.source),
                    "ranks": {str(pid): rank for pid, rank in log.ranks.items()},
                }
                for log in logs
            ],
        }
        first = json.dumps(order).encode() + b"\n"
        self._workers = [_Worker(first) for _ in range(workers)]
        self._answers: dict[int, array[int]] = {}
        self._pieces: list[_Piece] = []
        self._stopped = False

    def hits(self, log: int = 0, start: int = 0, end: int | None = None) -> Iterator[array[int]]:
        """Yield the offsets of the wanted lines of log number `log`, ascending, piece by piece.

        Only lines that begin from `start` to before `end`, by default all that were there when the
        log was looked at; a piece without a hit yields an empty array, so that progress shows.
        Raises `UsageError` for a pattern without an end, `StoppedError` after `stop`.
        """
        end = self._logs[log].size if end is None else end
        for found in self._search(_pieces(log, start, end, self._logs[log].holes)):
            yield found.offsets

    def newest(self, log: int, start: int, end: int) -> Iterator[Found]:
        """Yield what `hits` does, but the last piece first, each with its range."""
        yield from self._search(_pieces_back(log, start, end, self._logs[log].holes))

    def _search(self, pieces: Iterator[_Piece]) -> Iterator[Found]:
        waiting: deque[int] = deque()
        for piece in pieces:
            if len(waiting) >= 2 * len(self._workers):
                yield self._collect(waiting.popleft())
            waiting.append(self._submit(piece))
        while waiting:
            yield self._collect(waiting.popleft())

    def stop(self) -> None:
        """Kill the workers; may be called from any thread, and again."""
        self._stopped = True
        for worker in self._workers:
            worker.process.kill()

    def __enter__(self) -> Search:
        return self

    def __exit__(self, *_: object) -> None:
        self.stop()
        for worker in self._workers:
            worker.close()

    def _submit(self, piece: _Piece) -> int:
        number = len(self._pieces)
        self._pieces.append(piece)
        worker = min(self._workers, key=lambda worker: len(worker.asked))
        try:
            worker.ask(number, piece)
        except OSError:
            self._fail(worker)
        return number

    def _collect(self, number: int) -> Found:
        while number not in self._answers:
            worker = next(worker for worker in self._workers if number in worker.asked)
            try:
                fine, answer = worker.receive()
            except (OSError, EOFError):
                self._fail(worker)
            if not fine:
                raise PanelError(answer.decode())
            self._answers[worker.asked.popleft()] = array("Q", answer)
        _, _, start, end = self._pieces[number]
        return Found(start, end, self._answers.pop(number))

    def _fail(self, worker: _Worker) -> NoReturn:
        if self._stopped:
            raise StoppedError("the search was stopped") from None
        code = worker.process.wait()
        if code == -signal.SIGVTALRM and worker.asked:
            piece = self._pieces[worker.asked[0]]
            raise UsageError(
                f"the pattern came to no end within {self._patience_s:g} s "
                f"behind byte {piece.start} of {self._logs[piece.log].source}",
                "it tries too many ways to match: avoid repeats of repeats such as (a+)+",
            ) from None
        raise PanelError(
            f"a search process {exit_words(code)}", "search again; check free memory"
        ) from None


class _Piece(NamedTuple):
    log: int
    floor: int
    """The end of the hole before it, or the beginning of the log."""
    start: int
    end: int


def _pieces(log: int, start: int, end: int, holes: Sequence[Hole]) -> Iterator[_Piece]:
    size = _FIRST_PIECE
    for low, high in kept(start, end, holes):
        floor = max((hole.end for hole in holes if hole.end <= low), default=0)
        while low < high:
            yield _Piece(log, floor, low, min(low + size, high))
            low += size
            size = min(2 * size, PIECE)


def _pieces_back(log: int, start: int, end: int, holes: Sequence[Hole]) -> Iterator[_Piece]:
    size = _FIRST_PIECE
    for low, high in reversed(kept(start, end, holes)):
        floor = max((hole.end for hole in holes if hole.end <= low), default=0)
        while low < high:
            yield _Piece(log, floor, max(high - size, low), high)
            high -= size
            size = min(2 * size, PIECE)


class _Worker:
    def __init__(self, order: bytes) -> None:
        # Isolated and without site packages: it starts in a third of the time.
        self.process = subprocess.Popen(
            [sys.executable, "-I", "-S", "-c", _BOOT, _ROOT],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            env=os.environ | _KEEPS_MEMORY,
        )
        assert self.process.stdin
        assert self.process.stdout
        self._stdin, self._stdout = self.process.stdin, self.process.stdout
        self.asked: deque[int] = deque()
        """Numbers of the pieces that are not answered yet, in order."""
        self._send(order)

    def ask(self, number: int, piece: _Piece) -> None:
        """Let it search a piece. Raises OSError at its end."""
        self.asked.append(number)
        self._send(" ".join(map(str, piece)).encode() + b"\n")

    def _send(self, data: bytes) -> None:
        self._stdin.write(data)
        self._stdin.flush()

    def receive(self) -> tuple[bool, bytes]:
        """Return the next answer. Raises EOFError at its end."""
        head = self._stdout.read(FRAME.size)
        if len(head) < FRAME.size:
            raise EOFError
        fine, length = FRAME.unpack(head)
        answer = self._stdout.read(length)
        if len(answer) < length:
            raise EOFError
        return fine, answer

    def close(self) -> None:
        """Wait for its end and let go of the pipes."""
        self.process.wait()
        with contextlib.suppress(OSError):
            self._stdin.close()
        self._stdout.close()
