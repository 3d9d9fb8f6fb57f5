"""The worker processes: order, pieces, holes, bounds, nothing left behind."""

from __future__ import annotations

import gzip
import itertools
import os
import threading
from pathlib import Path

import pytest

from panel.domain.errors import PanelError, UsageError
from panel.logs import search as module
from panel.logs.holes import Hole
from panel.logs.query import Query
from panel.logs.records import Level
from panel.logs.search import Search, StoppedError, searchable

LINES = [
    f"[2026-01-31 12:00:00.123 TP{i % 8} serving] "
    f"{'ERROR odd' if i % 97 == 3 else 'INFO even'} number {i}\n"
    for i in range(3000)
]
OFFSETS = [0, *itertools.accumulate(map(len, LINES))]


@pytest.fixture
def log(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setattr(module, "PIECE", 4096)
    monkeypatch.setattr(module, "_FIRST_PIECE", 1000)
    path = tmp_path / "rank-1.log"
    path.write_text("".join(LINES))
    return path


def found(path: Path, query: Query, holes: tuple[Hole, ...] = ()) -> list[int]:
    with Search([searchable("engine", path, holes)], query) as search:
        return [offset for piece in search.hits() for offset in piece]


@pytest.mark.parametrize(
    ("query", "wanted"),
    [
        (Query("odd"), [i for i in range(3000) if i % 97 == 3]),
        (Query("ODD number \\d+3$", ignore_case=True),
         [973, 1943, 2913]),
        (Query("odd", invert=True), [i for i in range(3000) if i % 97 != 3]),
        (Query("number 7.", literal=True), []),
        (Query(level=Level.ERROR), [i for i in range(3000) if i % 97 == 3]),
        (Query("odd", ranks=(3, 4)), [i for i in range(3000) if i % 97 == 3 and i % 8 in (3, 4)]),
        (Query(), list(range(3000))),
    ],
)  # fmt: skip
@pytest.mark.parametrize("packed", [False, True])
def test_hits_come_in_order(log: Path, query: Query, wanted: list[int], packed: bool) -> None:
    if packed:
        log.write_bytes(gzip.compress(log.read_bytes()))
    assert found(log, query) == [OFFSETS[i] for i in wanted]


def test_the_rank_of_a_source_is_that_of_its_lines(log: Path) -> None:
    with Search([searchable("rank-1", log)], Query("odd", ranks=(1,))) as search:
        assert sum(len(piece) for piece in search.hits()) == len(range(3, 3000, 97))


def test_several_logs_side_by_side(log: Path, tmp_path: Path) -> None:
    other = tmp_path / "rank-2.log"
    other.write_text("odd\n" * 2000)
    logs = [searchable("rank-1", log), searchable("rank-2", other)]
    with Search(logs, Query("odd")) as search:
        one, two = search.hits(0), search.hits(1)
        pairs = list(itertools.zip_longest(one, two, fillvalue=()))
    assert sum(len(first) for first, _ in pairs) == len(range(3, 3000, 97))
    assert sum(len(second) for _, second in pairs) == 2000


def test_a_range_has_the_lines_that_begin_in_it(log: Path) -> None:
    with Search([searchable("engine", log)], Query("number")) as search:
        hits = [
            offset for piece in search.hits(0, OFFSETS[5] + 1, OFFSETS[2000]) for offset in piece
        ]
        more = [offset for piece in search.hits(0, OFFSETS[2000]) for offset in piece]
    assert hits == OFFSETS[6:2000]
    assert more == OFFSETS[2000:3000]


def test_a_line_over_many_pieces(tmp_path: Path, log: Path) -> None:
    log.write_bytes(b"first\n" + b"y" * 50_000 + b"needle" + b"z" * 50_000 + b"\nlast needle")
    assert found(log, Query("needle")) == [6, 6 + 100_006 + 1]


def test_holes_are_passed_over(log: Path) -> None:
    data = log.read_bytes()
    hole = Hole(OFFSETS[500], OFFSETS[2500], 2000)
    log.write_bytes(data[: hole.start] + b"\0" * (hole.end - hole.start) + data[hole.end :])
    assert found(log, Query("number"), (hole,)) == OFFSETS[:500] + OFFSETS[2500:3000]


def test_a_pattern_without_end_is_ended(log: Path) -> None:
    log.write_text("a" * 40 + "\n")
    with Search([searchable("engine", log)], Query("(a+)+b"), patience_s=0.2) as search:
        with pytest.raises(UsageError, match=r"no end within 0\.2 s behind byte 0 of engine"):
            list(search.hits())
        workers = [worker.process for worker in search._workers]
    assert all(process.returncode is not None for process in workers)


def test_stopping_from_another_thread(log: Path) -> None:
    log.write_text("a" * 40 + "\n")
    with Search([searchable("engine", log)], Query("(a+)+b"), patience_s=60) as search:
        threading.Timer(0.1, search.stop).start()
        with pytest.raises(StoppedError):
            list(search.hits())


def test_a_worker_that_is_killed(log: Path) -> None:
    with Search([searchable("engine", log)], Query("odd")) as search:
        for worker in search._workers:
            worker.process.kill()
        with pytest.raises(PanelError, match="killed by SIGKILL"):
            list(search.hits())


def test_a_log_that_is_gone_by_then(log: Path) -> None:
    known = searchable("engine", log)
    log.unlink()
    with Search([known], Query("odd")) as search, pytest.raises(PanelError, match="there is no"):
        list(search.hits())


def test_a_hit_that_is_not_wanted_leaves_nothing_behind(log: Path) -> None:
    with Search([searchable("engine", log)], Query("number")) as search:
        assert len(next(search.hits())) > 0
        processes = [worker.process for worker in search._workers]
    assert all(process.returncode is not None for process in processes)
    with pytest.raises(ProcessLookupError):
        os.kill(processes[0].pid, 0)
