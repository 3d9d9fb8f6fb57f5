"""The launcher of another engine: its children, its environment, its death."""

from __future__ import annotations

import os
import signal
import sys
from collections.abc import Callable
from pathlib import Path

from panel.supervisor import procfs
from tests.keeper.support import KeeperProcess, wait_for

StartKeeper = Callable[..., KeeperProcess]

LAUNCHER = """
import os, signal, sys, time
if os.fork() == 0:
    if os.fork() == 0:
        print("worker", os.getpid(), flush=True)
        signal.pause()
    signal.pause()
print("ready", flush=True)
signal.pause()
"""


def engine(keeper: KeeperProcess) -> int:
    """Start an engine of three generations; return the pid of the launcher."""
    keeper.order(processes=[keeper.engine(LAUNCHER, "--api-key", "secret-word")], grace_s=10.0)
    wait_for(lambda: len(keeper.events("spawn")) == 3, "three generations")
    return int(keeper.events("spawn")[0]["pid"])


def test_what_a_launcher_starts_is_noted(start_keeper: StartKeeper) -> None:
    keeper = start_keeper(spawner=None)
    launcher = engine(keeper)
    first, second, third = keeper.events("spawn")
    assert [first["ppid"], second["ppid"], third["ppid"]] == [keeper.pid, launcher, second["pid"]]
    assert {event["source"] for event in (first, second, third)} == {"engine"}
    for event in (first, second, third):
        assert procfs.is_alive(event["pid"], event["start_ticks"])
        assert event["command"].startswith(sys.executable)
        assert len(event["command"]) <= 160
    assert "secret-word" not in (keeper.folder / "events.jsonl").read_text()
    assert procfs.marked({procfs.LAUNCH_MARKER: keeper.uuid}) == keeper.left()


def test_a_stop_is_for_the_launcher_and_then_for_what_it_leaves(
    start_keeper: StartKeeper,
) -> None:
    keeper = start_keeper(spawner=None)
    engine(keeper)
    family = [event["pid"] for event in keeper.events("spawn")]
    keeper.stop()
    assert keeper.end() == 0
    sent = [(event["pid"], event["sig"]) for event in keeper.events("signal")]
    assert sent == [(pid, signal.SIGTERM) for pid in family]
    assert [event["pid"] for event in keeper.events("exit")] == family
    assert keeper.states() == ["up", "stopping", "down"]
    assert keeper.left() == []


def test_a_dead_launcher_takes_its_orphans_along(start_keeper: StartKeeper) -> None:
    keeper = start_keeper(spawner=None)
    launcher = engine(keeper)
    _, child, worker = (event["pid"] for event in keeper.events("spawn"))
    os.kill(launcher, signal.SIGKILL)
    assert keeper.end() == 0
    assert keeper.state("failing")["reason"].startswith(f"engine (pid {launcher}) killed by")
    codes = {event["pid"]: event["code"] for event in keeper.events("exit")}
    assert codes == {launcher: -9, child: -15, worker: -15}
    assert keeper.left() == []


def test_the_death_of_a_grandchild_is_noted_without_a_code(start_keeper: StartKeeper) -> None:
    keeper = start_keeper(spawner=None)
    engine(keeper)
    worker = keeper.events("spawn")[-1]["pid"]
    os.kill(worker, signal.SIGKILL)
    wait_for(lambda: keeper.events("exit"), "its exit")
    assert keeper.events("exit")[0]["pid"] == worker
    assert keeper.events("exit")[0]["code"] is None
    assert keeper.states() == ["up"]


def test_folder_environment_and_descriptors(start_keeper: StartKeeper, tmp_path: Path) -> None:
    code = """
import os, signal
for name in ("MOEPANEL_LAUNCH", "MOEPANEL_T0_NS", "COLOUR"):
    print(name, os.environ[name])
print("folder", os.getcwd())
print("files", sorted(os.listdir("/proc/self/fd"))[:3], len(os.listdir("/proc/self/fd")))
print("signals", signal.getsignal(signal.SIGHUP) is signal.SIG_DFL, flush=True)
signal.pause()
"""
    folder = tmp_path / "work"
    folder.mkdir()
    keeper = start_keeper(spawner=None)
    keeper.order(processes=[keeper.engine(code, cwd=folder)], env={"COLOUR": "red"})
    wait_for(lambda: "signals" in keeper.log("engine"), "the engine")
    lines = dict(line.split(" ", 1) for line in keeper.log("engine").splitlines())
    assert lines["MOEPANEL_LAUNCH"] == keeper.uuid
    assert int(lines["MOEPANEL_T0_NS"]) > 0
    assert lines["COLOUR"] == "red"
    assert lines["folder"] == str(folder)
    # The fourth is the listing itself.
    assert lines["files"] == "['0', '1', '2'] 4"
    assert lines["signals"] == "True"


def test_an_engine_that_ends_by_itself_is_down(start_keeper: StartKeeper) -> None:
    keeper = start_keeper(spawner=None)
    keeper.order(processes=[keeper.engine("")], evidence_s=30.0)
    assert keeper.end() == 0
    assert keeper.states() == ["up", "failing", "down"]
    assert keeper.events("exit")[0]["code"] == 0


def test_an_unused_spawner_goes_and_the_engine_stays(start_keeper: StartKeeper) -> None:
    keeper = start_keeper()
    launcher = engine(keeper)
    family = {event["pid"] for event in keeper.events("spawn")}
    assert {stat.pid for stat in procfs.descendants(keeper.pid)} == family
    assert launcher in family
