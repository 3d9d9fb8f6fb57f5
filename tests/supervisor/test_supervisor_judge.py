"""The judge: reads what is new, and has the verdict before anything has ended."""

from __future__ import annotations

import json
import os
from pathlib import Path

import msgspec
import pytest

from panel.domain.events import Exit, Gang, Spawn
from panel.domain.verdict import Verdict
from panel.engines.base import Progress
from panel.engines.builtin import Builtin
from panel.supervisor.evidence import Folder, LaunchSpec
from panel.supervisor.judge import Judge
from panel.supervisor.launch import Launch
from panel.supervisor.view import view_launch

WORLD = 2
TRACE = (
    "Traceback (most recent call last):",
    '  File "/srv/x.py", line 3, in capture',
    "    assert ready",
    "AssertionError",
)


@pytest.fixture
def folder(tmp_path: Path) -> Folder:
    return Folder(tmp_path)


@pytest.fixture
def spec() -> LaunchSpec:
    plan = {
        "request": {"profile": "tiny"}, "engine": "builtin", "version": "1", "world_size": WORLD,
        "flags": [], "argv": [],
    }  # fmt: skip
    spec = {
        "id": 1, "uuid": "u", "t0_unix": 0.0, "t0_mono_ns": 0, "boot_id": "b", "engine": "builtin",
        "version": "1", "profile": "tiny", "world_size": WORLD, "url": "", "argv": [], "env": {},
        "sources": {"rank-0": 0, "rank-1": 1, "frontend": None}, "plan": plan,
    }  # fmt: skip
    return msgspec.convert(spec, LaunchSpec)


@pytest.fixture
def judge(folder: Folder, spec: LaunchSpec) -> Judge:
    judge = Judge(folder, spec, Builtin())
    judge.see(Spawn(t=0.1, source=f"rank-{rank}", pid=10 + rank, rank=rank) for rank in (0, 1))
    return judge


def write(folder: Folder, source: str, t: float, *lines: str) -> None:
    with folder.log(source).open("ab") as log:
        position = log.tell()
        for line in lines:
            log.write(f"[2026-01-31 12:00:00.000 TP1 capture] ERROR {line}\n".encode())
    with folder.times(source).open("a") as times:
        times.write(json.dumps({"t": t, "offset": position}) + "\n")


def test_death_is_explained_by_what_the_rank_wrote_before_it(folder: Folder, judge: Judge) -> None:
    write(folder, "rank-1", 5.0, *TRACE)
    judge.see([Exit(t=5.1, pid=11, code=1)])
    verdict = judge.verdict(5.2, (), over=False)
    assert verdict is not None
    assert (verdict.root_ranks, verdict.kind, verdict.final) == ((1,), "unknown_exception", False)
    assert verdict.headline == "rank 1 failed first: AssertionError in capture: assert ready"
    judge.see([Gang(t=6.0, state="down")])
    last = judge.verdict(6.0, (), over=True)
    assert last is not None
    assert last.final


@pytest.mark.timeout(20)
def test_what_is_no_log_is_passed_over(folder: Folder, judge: Judge) -> None:
    os.mkfifo(folder.log("rank-0"))
    folder.log("frontend").mkdir()
    write(folder, "rank-1", 5.0, *TRACE)
    judge.see([Exit(t=5.1, pid=11, code=1)])
    verdict = judge.verdict(5.2, (), over=True)
    assert verdict is not None
    assert verdict.root_ranks == (1,)


def test_log_is_looked_at_without_any_event(folder: Folder, judge: Judge) -> None:
    assert judge.verdict(1.0, (), over=False) is not None
    write(folder, "rank-1", 5.0, *TRACE)
    assert judge.verdict(1.1, (), over=False) is None
    verdict = judge.verdict(1.5, (), over=False)
    assert verdict is not None
    assert verdict.root_ranks == (1,)


def test_bytes_wait_for_the_time_of_their_arrival(folder: Folder, judge: Judge) -> None:
    write(folder, "rank-1", 5.0, *TRACE)
    folder.times("rank-1").rename(folder.path / "later")
    verdict = judge.verdict(1.0, (), over=False)
    assert verdict is not None
    assert verdict.status == "running"
    (folder.path / "later").rename(folder.times("rank-1"))
    verdict = judge.verdict(2.0, (), over=False)
    assert verdict is not None
    assert (verdict.status, verdict.t_first) == ("crashed", 5.0)


def test_a_victims_last_line_never_seems_older_than_what_it_tells_of(
    folder: Folder, judge: Judge
) -> None:
    write(folder, "rank-0", 1.0, "a line that came long before")
    judge.verdict(1.5, (), over=False)
    write(folder, "rank-1", 5.0, *TRACE)
    write(folder, "rank-0", 5.2, "rank 1 (pid 11) is gone at step 0; look in the log of rank 1")
    times = folder.times("rank-0").read_text()
    folder.times("rank-0").write_text(times.splitlines(keepends=True)[0])
    judge.see([Exit(t=5.1, pid=11, code=1)])
    first = judge.verdict(5.2, (), over=False)
    folder.times("rank-0").write_text(times)
    then = judge.verdict(5.3, (), over=False)

    for verdict in (first, then):
        assert verdict is not None
        assert verdict.headline == "rank 1 failed first: AssertionError in capture: assert ready"


def test_bytes_without_a_time_of_their_own_wait_for_one_look_only(
    folder: Folder, judge: Judge
) -> None:
    write(folder, "rank-1", 5.0, "before")
    judge.verdict(5.1, (), over=False)
    times = folder.times("rank-1").read_text()
    write(folder, "rank-1", 5.3, *TRACE)
    folder.times("rank-1").write_text(times)
    assert judge.verdict(5.4, (), over=False) is None
    verdict = judge.verdict(5.5, (), over=False)
    assert verdict is not None
    assert verdict.root_ranks == (1,)


def test_heartbeats_that_grow_old_are_judged_by_the_time_alone(judge: Judge) -> None:
    def beats(age: float) -> list[Progress | None]:
        return [Progress("serving", 0, 0, 0, 9 - rank, age) for rank in (0, 1)]

    fresh = judge.verdict(1.0, beats(0.1), over=False)
    assert fresh is not None
    assert fresh.status == "running"
    assert judge.verdict(1.2, beats(0.1), over=False) is None
    stale = judge.verdict(40.0, beats(30.0), over=False)
    assert stale is not None
    assert (stale.status, stale.root_ranks) == ("hung", (1,))


def launched(folder: Folder, spec: LaunchSpec, verdict: Verdict | None) -> Launch:
    """A launch of two ranks that somebody stopped, under this verdict."""
    folder.events.write_text(
        '{"t": 0.1, "kind": "spawn", "source": "rank-0", "pid": 10, "rank": 0}\n'
        '{"t": 40, "kind": "operator", "action": "down"}\n'
        '{"t": 40, "kind": "gang", "state": "stopping"}\n'
        '{"t": 41, "kind": "signal", "pid": 10, "sig": 9}\n'
        '{"t": 41, "kind": "exit", "pid": 10, "code": -9}\n'
        '{"t": 42, "kind": "gang", "state": "down"}\n'
    )
    launch = Launch(spec, folder, Builtin(), None)
    launch.verdict = verdict
    launch.read_events()
    launch.judge()
    return launch


def test_a_launch_that_was_stopped_keeps_that_it_hung(folder: Folder, spec: LaunchSpec) -> None:
    hung = Verdict(status="hung", headline="rank 1 made no step for 25 s")
    launch = launched(folder, spec, hung)
    assert launch.verdict is not None
    assert launch.verdict.note == "it hung before: rank 1 made no step for 25 s"
    assert launch.record().outcome.startswith("stopped by the operator; it hung before: rank 1")


def test_nobody_guesses_at_the_killer_of_what_we_killed(folder: Folder, spec: LaunchSpec) -> None:
    (process,) = view_launch(launched(folder, spec, None)).processes
    assert process.exit is not None
    assert process.exit.words == "killed by SIGKILL"
