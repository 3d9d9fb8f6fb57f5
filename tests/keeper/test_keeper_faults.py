"""What stands against the keeper itself: its own bugs, a full disk."""

from __future__ import annotations

import json
import os
import signal
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from panel.supervisor.keeper.journal import Journal
from tests.keeper.support import KeeperProcess, wait_for

StartKeeper = Callable[..., KeeperProcess]

BROKEN = """
import sys
from panel.supervisor.keeper.__main__ import main
from panel.supervisor.keeper.events import Events

whole = Events.exit
def broken(self, pid, code):
    Events.exit = whole
    raise ZeroDivisionError("a bug")
Events.exit = broken
sys.exit(main(sys.argv[1:]))
"""


def test_a_bug_in_the_keeper_stops_the_gang_in_order(start_keeper: StartKeeper) -> None:
    keeper = start_keeper(program=[sys.executable, "-c", BROKEN])
    keeper.order("rank-0=sleep", "rank-1=drain", "rank-2=ignore-term", "rank-3=orphan")
    pids = keeper.up()
    os.kill(pids["rank-0"], signal.SIGKILL)
    assert keeper.end() == 1
    assert keeper.left() == []
    assert "ZeroDivisionError: a bug" in (keeper.folder / "keeper.log").read_text()
    assert keeper.states() == ["up", "failing", "down"]
    assert "fault of its own" in keeper.state("failing")["reason"]
    codes = {event["pid"]: event["code"] for event in keeper.events("exit")}
    assert codes[pids["rank-1"]] == 0
    assert codes[pids["rank-2"]] == -signal.SIGKILL


def test_a_full_disk_harms_nobody(start_keeper: StartKeeper) -> None:
    keeper = start_keeper()
    (keeper.folder / "events.jsonl").symlink_to("/dev/full")
    keeper.order("rank-0=drain")
    wait_for(lambda: "ready" in keeper.log("rank-0"), "the rank")
    keeper.stop()
    assert keeper.end() == 0
    said = (keeper.folder / "keeper.log").read_text()
    assert said.count("No space left on device") == 1
    assert "drained" in keeper.log("rank-0")
    assert keeper.left() == []


def read(path: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in path.read_text().splitlines() if line]


def test_lost_lines_are_counted_and_said_once(
    tmp_path: Path, capfd: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "events.jsonl"
    journal = Journal(str(path))
    write = os.write

    def full(fd: int, data: bytes) -> int:
        if fd == 2:
            return write(fd, data)
        raise OSError(28, "No space left on device")

    assert journal.write(n=0)
    monkeypatch.setattr(os, "write", full)
    assert not journal.write(n=1)
    assert not journal.write(n=2)
    monkeypatch.undo()
    assert journal.write(n=3)
    assert journal.write(n=4)
    assert [line["n"] for line in read(path)] == [0, 3, 4]
    first, second = capfd.readouterr().err.splitlines()
    assert first.endswith("No space left on device")
    assert second.endswith("2 lines were lost")


def test_a_torn_line_spoils_no_other(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "events.jsonl"
    journal = Journal(str(path))
    write = os.write
    monkeypatch.setattr(os, "write", lambda fd, data: write(fd, data[:4] if fd != 2 else data))
    assert not journal.write(n=1)
    monkeypatch.undo()
    assert journal.write(n=2)
    assert path.read_text().splitlines() == ['{"n"', '{"n":2}']
