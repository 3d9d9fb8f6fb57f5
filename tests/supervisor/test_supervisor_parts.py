"""Ledger, tails, metrics, publisher and checks, each for itself."""

from __future__ import annotations

import asyncio
import os
import socket
import sqlite3
from contextlib import closing
from itertools import accumulate
from pathlib import Path

import pytest

from panel.domain.errors import NotFoundError, PanelError
from panel.domain.events import Exit, Operator
from panel.domain.flags import Request
from panel.domain.hang import Suspicion
from panel.domain.snapshot import Host, LaunchView, Snapshot, Supervisor
from panel.domain.states import LaunchState
from panel.domain.wire import LaunchRecord
from panel.engines.builtin import Builtin
from panel.logs.query import Query
from panel.probes.hang.look import Standing
from panel.supervisor.checks import disk_problems, port_problems
from panel.supervisor.evidence import EventReader, Folder, append_event, read_tail
from panel.supervisor.hangs import name_stopped
from panel.supervisor.launcher import next_number, url
from panel.supervisor.ledger import Ledger
from panel.supervisor.ports import listener
from panel.supervisor.publisher import Publisher
from panel.supervisor.search import Hunt
from panel.supervisor.sources import Manner, Source
from panel.supervisor.watch.late import ENOUGH, OLD_S, LateRanks
from panel.supervisor.watch.logs import LogSampler, last_line
from panel.supervisor.watch.metrics import MetricsHistory, parse
from panel.supervisor.watch.processes import ProcessSampler


def record(number: int, profile: str = "tiny", ready_s: float | None = None) -> LaunchRecord:
    return LaunchRecord(
        id=number,
        uuid=f"u{number}",
        request=Request(profile=profile, set={"ep-size": "8"}),
        engine="builtin",
        version="1",
        state=LaunchState.STOPPED,
        t0_unix=5.0,
        ready_s=ready_s,
        phases={"weights": 1.5},
        versions={"python": "3"},
    )


def test_ledger_keeps_rows(tmp_path: Path) -> None:
    path = tmp_path / "ledger.sqlite"
    ledger = Ledger(path)
    assert (ledger.last_id(), ledger.recent(5)) == (0, [])
    for number, ready in ((1, 4.0), (2, None), (3, 2.0)):
        ledger.put(record(number, ready_s=ready))
    ledger.put(record(4, "other", 99.0))

    reader = Ledger(path)
    assert reader.get(3) == record(3, ready_s=2.0)
    assert reader.get(-1).id == 4
    assert reader.get(-4).id == 1
    assert [each.id for each in reader.recent(2)] == [4, 3]
    assert (reader.usual_ready_s("tiny"), reader.usual_ready_s("none")) == (3.0, None)
    assert path.stat().st_mode & 0o077 == 0
    with pytest.raises(NotFoundError, match="no launch -5"):
        reader.get(-5)
    ledger.put(record(3, ready_s=7.0))
    assert reader.get(3).ready_s == 7.0
    ledger.close()
    reader.close()


def test_ledger_of_an_older_version_is_read(tmp_path: Path) -> None:
    path = tmp_path / "ledger.sqlite"
    ledger = Ledger(path)
    ledger.put(record(1, ready_s=5.0))
    ledger.close()
    with closing(sqlite3.connect(path)) as older:
        older.execute("alter table launches drop column env")

    ledger = Ledger(path)
    assert (ledger.get(1).ready_s, ledger.get(1).env) == (5.0, {})
    ledger.close()


def test_damaged_ledger_is_named(tmp_path: Path) -> None:
    path = tmp_path / "ledger.sqlite"
    path.write_bytes(b"no database at all" * 100)

    with pytest.raises(PanelError, match=r"ledger\.sqlite.*move the file away"):
        Ledger(path)


def test_events_are_read_once_and_strangers_passed_over(tmp_path: Path) -> None:
    folder = Folder(tmp_path)
    reader = EventReader(folder)
    assert reader.read() == []
    append_event(folder, Operator(t=0.0, action="up"))
    with folder.events.open("a") as file:
        file.write('{"t": 1, "kind": "xid", "code": 79}\nnot json\n{"t": 2, "kind": "ex')
    assert reader.read() == [Operator(t=0.0, action="up")]
    with folder.events.open("a") as file:
        file.write('it", "pid": 7, "code": -9, "more": 1}\n')
    assert reader.read() == [Exit(t=2.0, pid=7, code=-9)]
    assert reader.read() == []


def test_number_is_one_that_nobody_has(tmp_path: Path) -> None:
    from panel.config.home import find_home

    home = find_home({"MOEPANEL_HOME": str(tmp_path)})
    home.prepare()
    assert next_number(home, 0) == 1
    home.launch(41).mkdir()
    assert next_number(home, 3) == 42
    assert next_number(home, 50) == 51


def test_url_is_reachable_from_this_node() -> None:
    assert url("0.0.0.0", 30000) == "http://127.0.0.1:30000"
    assert url("::1", 1) == "http://[::1]:1"


# Tails


@pytest.fixture
def folder(tmp_path: Path) -> Folder:
    return Folder(tmp_path)


def test_tail_knows_its_line_number(folder: Folder) -> None:
    folder.log("a").write_text("".join(f"line {n}\n" for n in range(1, 101)))

    tail = read_tail(folder.log("a"), 50)

    assert tail.data.startswith(f"line {tail.line}\n".encode())
    assert folder.log("a").read_bytes()[tail.offset :] == tail.data


# Samplers


@pytest.mark.parametrize(
    ("tail", "shown"),
    [
        (b"", ""),
        (b"half", ""),
        (b"one\nhal", "one"),
        (b"one\n\n  \n", "one"),
        (b"[2026-01-31 12:00:00.123 TP3 EP3 capture] INFO \x1b[1mbs 64\x1b[0m\n", "bs 64"),
        (b"caf\xe9\n", "caf\ufffd"),
        (b"x" * 300 + b"\n", "x" * 200),
    ],
)
def test_last_line(tail: bytes, shown: str) -> None:
    assert last_line(tail) == shown


def test_logs_are_read_only_when_they_grew(folder: Folder) -> None:
    log = folder.log("a")
    log.write_text("first\n")
    sampler = LogSampler(folder, ["a", "b"])
    sampler.sample()
    # Same size, other text: a file that did not grow is not read again.
    log.write_text("other\n")
    sampler.sample()
    assert (sampler.sizes, sampler.last_lines) == ({"a": 6}, {"a": "first"})
    log.write_text("other\nmore\n")
    sampler.sample()
    assert sampler.last_lines == {"a": "more"}


@pytest.mark.timeout(20)
def test_a_log_that_becomes_a_pipe_blocks_nobody(folder: Folder) -> None:
    os.mkfifo(folder.log("a"))
    sampler = LogSampler(folder, ["a"])
    sampler.sample()
    assert sampler.sizes == {}
    looked = Hunt([(Source("a", folder.log("a"), folder.times("a")), Manner())], Query("x"))
    try:
        assert [found.count for found in looked.all()] == []
    finally:
        looked.close()


def test_own_process_is_sampled() -> None:
    sampler = ProcessSampler()
    sampler.sample([os.getpid()], 1.0)
    usage = sampler.sample([os.getpid(), 1 << 22], 2.0)

    assert list(usage) == [os.getpid()]
    assert usage[os.getpid()].rss > 10 << 20
    assert usage[os.getpid()].threads >= 1


def exposition(tokens: int, drafts: int = 0, accepted: int = 0, ttft: tuple[int, ...] = ()) -> str:
    lines = [
        "# HELP moepanel_generation_tokens_total x",
        f"moepanel_generation_tokens_total {tokens}.0",
        f"moepanel_spec_drafts_total {drafts}",
        f"moepanel_spec_accepted_tokens_total {accepted}",
        'moepanel_requests_running{rank="0"} 1.0',
        'moepanel_requests_running{rank="1"} 2.0',
        "moepanel_kv_used_tokens 1.5e+01",
        "broken line",
    ]
    for bound, count in zip(("0.1", "0.2", "+Inf"), ttft, strict=False):
        lines.append(f'moepanel_time_to_first_token_seconds_bucket{{le="{bound}"}} {count}')
    return "\n".join(lines)


def test_metrics_from_differences() -> None:
    history = MetricsHistory(Builtin.metric_names)
    assert history.metrics() is None
    history.add(10.0, parse(exposition(100, 5, 5, (0, 0, 0))))
    history.add(12.0, parse(exposition(300, 15, 20, (0, 10, 10))))

    metrics = history.metrics()

    assert metrics is not None
    assert (metrics.tok_s, metrics.history) == (100.0, (100.0,))
    assert (metrics.running, metrics.kv_used) == (3, 15)
    assert metrics.acceptance == 2.5
    assert metrics.ttft_ms == 150.0


def measured(*tokens_a_second: int) -> MetricsHistory:
    history = MetricsHistory(Builtin.metric_names)
    for second, total in enumerate(accumulate((0, *tokens_a_second))):
        history.add(float(second), parse(exposition(total)))
    return history


def test_metrics_keep_a_minute() -> None:
    metrics = measured(*[10] * 100).metrics()

    assert metrics is not None
    assert len(metrics.history) == 60
    assert (metrics.acceptance, metrics.ttft_ms) == (None, None)


@pytest.mark.parametrize(
    ("tokens_a_second", "best"),
    [
        ((0, 0, 0), None),
        ((0, 115, 0, 0, 31, 0), 73.0),
        ((*[10] * 20, *[50] * 12, *[10] * 70), 50.0),
        ((*[100] * 5, *[20] * 10, 0), 60.0),
    ],
    ids=["idle", "two seconds of work", "a busy time", "fewer than ten of them"],
)
def test_best_speed_is_of_the_busiest_seconds(
    tokens_a_second: tuple[int, ...], best: float | None
) -> None:
    assert measured(*tokens_a_second).best == best


def test_best_speed_outlives_its_supervisor() -> None:
    history = measured(100)
    history.recall(50.0)
    assert history.best == 50.0
    history.add(2.0, parse(exposition(260)))
    assert history.best == 61.0


def test_counter_of_a_new_engine_is_not_negative() -> None:
    history = MetricsHistory(Builtin.metric_names)
    history.add(1.0, parse(exposition(500)))
    history.add(2.0, parse(exposition(10)))

    metrics = history.metrics()
    assert metrics is not None
    assert metrics.tok_s == 0.0


# Publisher


def snapshot(load: float, t: float | None = None) -> Snapshot:
    launch = None
    if t is not None:
        launch = LaunchView(
            id=1,
            uuid="u",
            request=Request(profile="tiny"),
            engine="builtin",
            version="1",
            state=LaunchState.SERVING,
            world_size=1,
            t0_unix=1.0,
            t=t,
            url="",
        )
    host = Host(name="n", cpus=1, load=load, memory_total=1, memory_available=1, gpu_note="")
    supervisor = Supervisor(pid=1, version="1", started_unix=1.0, home="h", socket="s")
    return Snapshot(seq=0, supervisor=supervisor, host=host, launch=launch)


def test_passing_time_alone_is_no_change() -> None:
    publisher = Publisher()
    for content in (snapshot(1.0, 5.0), snapshot(1.0, 6.0), snapshot(1.0, 7.0)):
        publisher.publish(content)
    assert publisher.seq == 1
    assert b'"t":7.0' in publisher.encoded
    publisher.publish(snapshot(2.0, 7.0))
    assert publisher.seq == 2


async def test_waiting_for_a_newer_snapshot() -> None:
    publisher = Publisher()
    waiting = asyncio.create_task(publisher.wait_newer(0, 10.0))
    await asyncio.sleep(0)
    publisher.publish(snapshot(1.0))
    assert await waiting
    assert not await publisher.wait_newer(1, 0.01)
    last = asyncio.create_task(publisher.wait_newer(1, 10.0))
    await asyncio.sleep(0)
    publisher.close()
    assert not await last


# Checks


def test_taken_port_offers_a_free_one(free_port: int) -> None:
    assert port_problems("127.0.0.1", free_port) == ()
    with socket.create_server(("127.0.0.1", free_port)):
        (problem,) = port_problems("127.0.0.1", free_port)
    assert problem.severity == "refusal"
    assert port_problems("127.0.0.1", int(problem.remedy["port"])) == ()


def test_foreign_address_is_refused() -> None:
    (problem,) = port_problems("203.0.113.7", 30000)

    assert (problem.severity, problem.flag) == ("refusal", "host")


def test_full_disk(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    class Disk:
        f_frsize = 1 << 20
        f_bavail = 5000

    monkeypatch.setattr(os, "statvfs", lambda _: Disk)
    assert disk_problems(tmp_path) == ()
    Disk.f_bavail = 500
    assert disk_problems(tmp_path)[0].severity == "warning"
    Disk.f_bavail = 63
    (problem,) = disk_problems(tmp_path)
    assert problem.severity == "refusal"
    assert f"{tmp_path}: 63 MiB free" in problem.text


def test_taken_port_names_who_has_it(free_port: int) -> None:
    with socket.create_server(("127.0.0.1", free_port)):
        (problem,) = port_problems("127.0.0.1", free_port)
    assert f"is taken by process {os.getpid()} (" in problem.text
    assert listener(free_port) == ""


def test_the_rank_that_the_others_wait_for() -> None:
    def standings(late: int) -> list[Standing]:
        return [Standing(rank, 9 - (rank == late), rank != late) for rank in range(4)]

    late = LateRanks()
    for t in range(ENOUGH - 1):
        late.look(float(t), standings(3), idle=False)
    assert late.shares(5.0) == {}
    late.look(5.0, standings(1), idle=False)
    assert late.shares(5.0) == {3: 0.8, 1: 0.2}
    assert late.shares(5.0 + OLD_S) == {}


def test_an_idle_gang_waits_for_its_leader_and_that_says_nothing() -> None:
    late = LateRanks()
    for t in range(ENOUGH):
        late.look(float(t), [Standing(0, 8, False), Standing(1, 9, True)], idle=True)
    assert late.shares(float(ENOUGH)) == {}


def test_suspicion_names_the_ranks_that_a_signal_stopped() -> None:
    found = Suspicion(since=3.0, ranks=(0, 1, 2), text="3 of 3 ranks without a beat")
    assert name_stopped(found, ()) == found
    named = name_stopped(found, (1,))
    assert named is not None
    assert named.ranks == (1,)
    assert named.text == "rank 1 is stopped (state T); 3 of 3 ranks without a beat"
    assert name_stopped(None, (1,)) is None
