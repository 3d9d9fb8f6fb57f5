"""What /proc says."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import Iterator

import pytest

from panel.supervisor import procfs
from tests.keeper.support import wait_for

LONG_NAME = (
    "import ctypes, signal; ctypes.CDLL(None).prctl(15, b'a) S (b', 0, 0, 0); signal.pause()"
)


@pytest.fixture
def sleeper() -> Iterator[subprocess.Popen[bytes]]:
    """A process with brackets in its name and a marker in its environment."""
    argv = [sys.executable, "-c", LONG_NAME, "two words"]
    with subprocess.Popen(argv, env=os.environ | {"MOEPANEL_LAUNCH": "u-1"}) as process:
        yield process
        process.kill()


def test_a_process_is_known_by_pid_and_start(sleeper: subprocess.Popen[bytes]) -> None:
    stat = procfs.stat(sleeper.pid)
    assert stat is not None
    assert stat.ppid == os.getpid()
    assert stat.start_ticks == procfs.start_ticks(sleeper.pid)
    assert procfs.is_alive(sleeper.pid, stat.start_ticks)
    assert not procfs.is_alive(sleeper.pid, stat.start_ticks - 1)
    assert sleeper.pid in procfs.pids()
    assert sleeper.pid in [each.pid for each in procfs.descendants(os.getpid())]


def test_brackets_in_a_name_do_not_confuse(sleeper: subprocess.Popen[bytes]) -> None:
    def renamed() -> bool:
        with open(f"/proc/{sleeper.pid}/comm") as comm:
            return comm.read() == "a) S (b\n"

    wait_for(renamed, "the name")
    stat = procfs.stat(sleeper.pid)
    assert stat is not None
    assert stat.ppid == os.getpid()


def test_markers_and_arguments(sleeper: subprocess.Popen[bytes]) -> None:
    wait_for(lambda: procfs.command_line(sleeper.pid).endswith("two words"), "exec")
    assert procfs.marked({"MOEPANEL_LAUNCH": "u-1"}) == [sleeper.pid]
    assert procfs.marked({"MOEPANEL_LAUNCH": "u-1", "MOEPANEL_KEEPER": "x"}) == [sleeper.pid]
    assert procfs.marked({"MOEPANEL_LAUNCH": "u-"}) == []


def test_a_stopped_process_lives_and_a_zombie_does_not(sleeper: subprocess.Popen[bytes]) -> None:
    ticks = procfs.start_ticks(sleeper.pid)
    assert ticks is not None
    sleeper.send_signal(signal.SIGSTOP)
    wait_for(lambda: procfs.state(sleeper.pid) == "T", "the stop")
    assert procfs.is_alive(sleeper.pid, ticks)
    sleeper.kill()
    wait_for(lambda: procfs.state(sleeper.pid) == "Z", "the end")
    assert not procfs.is_alive(sleeper.pid, ticks)
    sleeper.wait()
    assert procfs.stat(sleeper.pid) is None
    assert procfs.command_line(sleeper.pid) == ""
