"""Stacks of real processes, and what is made of them."""

from __future__ import annotations

import errno
import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import msgspec
import pytest

from panel.domain.stacks import Frame, ProcessStacks, Thread
from panel.probes.stacks import pyspy, right, signalled
from panel.probes.stacks.grouping import group, main_frames, meeting
from panel.probes.stacks.pyspy import Target
from panel.probes.stacks.take import take
from panel.probes.stacks.text import lines

PROGRAM = """
import faulthandler, signal, sys, threading
if sys.argv[2] == "answers":
    faulthandler.register(signal.SIGUSR1, all_threads=True)

def all_reduce(event):
    event.wait()

def elsewhere(event):
    event.wait()

def main():
    event = threading.Event()
    print("ready", flush=True)
    {"reduces": all_reduce, "strays": elsewhere}[sys.argv[1]](event)

main()
"""


class Children:
    """Processes that wait for ever at known places."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._program = folder / "rank.py"
        self._program.write_text(PROGRAM)
        self.processes: list[subprocess.Popen[bytes]] = []

    def start(self, rank: int, place: str, manners: str = "silent") -> Target:
        with (self._folder / f"rank-{rank}.log").open("wb") as log:
            process = subprocess.Popen(
                [sys.executable, str(self._program), place, manners],
                stdout=subprocess.PIPE,
                stderr=log,
            )
        self.processes.append(process)
        assert process.stdout is not None
        with process.stdout as ready:
            ready.readline()
        return Target(f"rank-{rank}", process.pid, rank)

    def log(self, source: str) -> Path:
        return self._folder / f"{source}.log"


@pytest.fixture
def children(tmp_path: Path) -> Iterator[Children]:
    found = Children(tmp_path)
    yield found
    for process in found.processes:
        process.kill()
        process.wait()


def stands_in(target: Target, function: str) -> ProcessStacks:
    """Return the stacks of a process once it has got to a function."""
    deadline = time.monotonic() + 20
    while True:
        (found,) = pyspy.dump([target], native=False, seconds=10)
        if any(frame.name == function for thread in found.threads for frame in thread.frames):
            return found
        assert time.monotonic() < deadline, found


def test_the_odd_rank_comes_first(children: Children) -> None:
    targets = [
        children.start(0, "reduces"),
        children.start(1, "strays"),
        children.start(2, "reduces"),
    ]
    for target in targets:
        stands_in(target, "elsewhere" if target.rank == 1 else "all_reduce")

    found = take(targets, t=12.0, reason="asked", seconds=10)

    assert [each.ranks for each in found.groups] == [(1,), (0, 2)]
    assert any(frame.name == "elsewhere" for frame in found.groups[0].frames)
    assert found.seconds < 10
    text = "\n".join(lines(found))
    assert text.index("rank 1") < text.index("ranks 0, 2")
    assert "elsewhere (rank.py:" in text


def test_a_stopped_rank_shows_its_stack_and_its_state(children: Children) -> None:
    target = children.start(0, "reduces")
    stands_in(target, "all_reduce")
    os.kill(target.pid, signal.SIGSTOP)
    os.waitid(os.P_PID, target.pid, os.WSTOPPED | os.WNOWAIT)

    (found,) = pyspy.dump([target], native=False, seconds=10)

    assert found.state == "T"
    assert found.trouble == ""
    assert any(frame.name == "all_reduce" for frame in found.threads[0].frames)
    assert "stopped by a signal" in "\n".join(lines(take([target], t=0, reason="x")))


def test_native_frames_on_demand(children: Children) -> None:
    target = children.start(0, "reduces")
    stands_in(target, "all_reduce")
    (found,) = pyspy.dump([target], native=True, seconds=20)
    assert any(".so" in frame.file for frame in found.threads[0].frames)


def test_a_process_that_is_gone(children: Children) -> None:
    target = children.start(0, "reduces")
    children.processes[0].kill()
    children.processes[0].wait()
    (found,) = pyspy.dump([target], native=False, seconds=10)
    assert found.threads == ()
    assert "gone" in found.trouble


def test_a_deadline_is_kept(
    children: Children, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    slow = tmp_path / "py-spy"
    slow.write_text("#!/bin/sh\nexec sleep 60\n")
    slow.chmod(0o755)
    monkeypatch.setattr(pyspy, "program", lambda: str(slow))
    (found,) = pyspy.dump([children.start(0, "reduces")], native=False, seconds=0.2)
    assert found.trouble == "py-spy did not answer in time"


def test_without_py_spy(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(pyspy, "program", lambda: None)
    (found,) = pyspy.dump([Target("rank-0", 1, 0)], native=False, seconds=1)
    assert "pip install py-spy" in found.trouble


def test_a_rank_that_may_not_be_traced_writes_its_own(
    children: Children, monkeypatch: pytest.MonkeyPatch
) -> None:
    answering = children.start(0, "reduces", "answers")
    silent = children.start(1, "reduces")
    stands_in(answering, "all_reduce")
    monkeypatch.setattr(right, "trouble", lambda pid: f"no right to trace {pid}")

    found = take([answering, silent], t=0, reason="x", log_of=children.log, seconds=10)

    own, refused = found.processes
    assert any(frame.name == "all_reduce" for frame in own.threads[0].frames)
    assert refused.trouble == f"no right to trace {silent.pid}"
    # A process that does not catch the signal is not sent it: it would die.
    assert all(process.poll() is None for process in children.processes)


def test_dumps_of_faulthandler() -> None:
    text = (
        "Thread 0x00007f01 (most recent call first):\n"
        '  File "/opt/x/threading.py", line 5 in wait\n\n'
        "Current thread 0x00007f02 [python3] (most recent call first):\n"
        '  File "/opt/x/panel/server/roster.py", line 80 in wait\n'
        '  File "/opt/x/panel/server/rank.py", line 9 in run_rank\n'
        "Extension modules: numpy\n"
    )
    main, other = signalled.parse(text)
    assert main.frames[0] == Frame(name="wait", file="server/roster.py", line=80)
    assert len(main.frames) == 2
    assert other.frames[0].line == 5
    assert signalled.parse("nothing of the kind") == ()


@pytest.mark.parametrize(
    ("scope", "words"),
    [(0, "SYS_PTRACE"), (1, "ptrace_scope=0"), (2, "CAP_SYS_PTRACE"), (3, "reboot")],
)
def test_the_remedy_is_named(scope: int, words: str, monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(path: str, _flags: int) -> int:
        raise PermissionError(errno.EACCES, "denied", path)

    monkeypatch.setattr(right.os, "open", refuse)
    monkeypatch.setattr(right, "yama_scope", lambda: scope)
    found = right.trouble(os.getpid())
    assert f"Yama scope {scope}" in found
    assert words in found


def test_own_processes_may_be_traced(children: Children) -> None:
    assert right.trouble(children.start(0, "reduces").pid) == ""


def _stack(rank: int, *frames: tuple[str, str, int]) -> ProcessStacks:
    made = tuple(Frame(name=name, file=file, line=line) for name, file, line in frames)
    thread = Thread(name="MainThread", frames=made)
    return ProcessStacks(source=f"rank-{rank}", pid=rank, rank=rank, threads=(thread,))


def test_the_line_of_the_innermost_frame_is_chance() -> None:
    waits = [
        _stack(rank, ("wait", "server/roster.py", rank), ("add", "reduction.py", 90))
        for rank in range(7)
    ]
    other = _stack(7, ("wait", "server/roster.py", 1), ("least", "meeting.py", 40))
    first, second = group([*waits, other])
    assert (first.ranks, second.ranks) == ((7,), tuple(range(7)))
    assert (first.waits, second.waits) == ("the other ranks", "the other ranks")


def test_a_stopped_rank_is_odd_wherever_it_stands() -> None:
    place = ("wait", "server/roster.py", 1)
    stopped = msgspec.structs.replace(_stack(5, place), state="T")
    groups = group([_stack(0, place), stopped, _stack(1, ("step", "leader.py", 3))])
    assert [each.ranks for each in groups] == [(5,), (1,), (0,)]


def test_who_does_not_wait_for_the_others_comes_before_who_does() -> None:
    leader = _stack(0, ("wait", "server/roster.py", 1), ("gather", "server/meeting.py", 96))
    hangs = _stack(6, ("fire", "server/faults.py", 96))
    rest = [_stack(rank, ("wait", "server/roster.py", 1), ("follow", "x.py", 1)) for rank in (1, 2)]
    assert [each.ranks for each in group([leader, *rest, hangs])] == [(6,), (0,), (1, 2)]


def test_other_processes_come_last() -> None:
    frontend = ProcessStacks(
        source="frontend", pid=1, threads=_stack(9, ("poll", "x.py", 1)).threads
    )
    ranks = [_stack(rank, ("wait", "server/roster.py", 1)) for rank in range(2)]
    assert [each.sources for each in group([frontend, *ranks])][-1] == ("frontend",)


def test_those_without_a_stack_stand_alone() -> None:
    silent = [
        ProcessStacks(source=f"rank-{rank}", pid=1, rank=rank, trouble="no") for rank in (3, 5)
    ]
    groups = group([*silent, _stack(0, ("wait", "server/roster.py", 1))])
    assert [each.ranks for each in groups] == [(3,), (5,), (0,)]


def at(rank: int, *frames: tuple[str, str], state: str = "S") -> ProcessStacks:
    thread = Thread(
        name="MainThread",
        frames=tuple(Frame(name=name, file=file, line=1) for name, file in frames),
    )
    return ProcessStacks(source=f"rank-{rank}", pid=rank, rank=rank, state=state, threads=(thread,))


WAIT = ("Roster.wait", "roster.py")
LEADER = (WAIT, ("Rendezvous.gather", "meeting.py"), ("run", "leader.py"))
FOLLOWER = (WAIT, ("_Gates.sleep", "meeting.py"), ("Rendezvous.follow", "meeting.py"))
ELSEWHERE = (WAIT, ("Barrier.wait", "meeting.py"), ("all_reduce", "reduction.py"))


def test_ranks_in_another_meeting_come_before_the_leader_who_is_alone_in_his_part() -> None:
    followers = [at(rank, *FOLLOWER) for rank in (1, 3, 4)]
    groups = group([at(0, *LEADER), at(2, *ELSEWHERE), at(5, *ELSEWHERE), *followers])
    assert [each.ranks for each in groups] == [(2, 5), (0,), (1, 3, 4)]


def test_both_sides_of_a_step_wait_in_one_meeting() -> None:
    leader, follower, barrier = (
        meeting(main_frames(at(0, *frames))) for frames in (LEADER, FOLLOWER, ELSEWHERE)
    )
    assert leader == follower != ()
    assert barrier == ("all_reduce", "reduction.py")
    assert meeting(main_frames(at(0, ("fire", "faults.py")))) == ()
