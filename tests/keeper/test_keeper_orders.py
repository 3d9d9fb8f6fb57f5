"""From the start of the keeper to the start of the gang."""

from __future__ import annotations

import json
import signal
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from panel.supervisor import procfs
from tests.keeper.support import SPAWNER, KeeperProcess, wait_for

StartKeeper = Callable[..., KeeperProcess]


def spawner_of(keeper: KeeperProcess) -> int:
    children = wait_for(lambda: procfs.descendants(keeper.pid), "the spawner")
    return children[0].pid


def test_without_an_order_nothing_is_left(start_keeper: StartKeeper) -> None:
    keeper = start_keeper()
    spawner = spawner_of(keeper)
    assert keeper.process.stdin is not None
    keeper.process.stdin.close()
    assert keeper.end() == 0
    wait_for(lambda: procfs.state(spawner) in (None, "Z"), "the end of the spawner")
    assert list(keeper.folder.iterdir()) == []


@pytest.mark.parametrize("sig", [signal.SIGTERM, signal.SIGINT])
def test_a_signal_before_the_order_ends_it(start_keeper: StartKeeper, sig: int) -> None:
    keeper = start_keeper()
    spawner = spawner_of(keeper)
    keeper.stop(sig)
    assert keeper.end() == 0
    wait_for(lambda: procfs.state(spawner) in (None, "Z"), "the end of the spawner")


def test_a_refusal_carries_the_spawners_reason_and_code(start_keeper: StartKeeper) -> None:
    keeper = start_keeper()
    keeper.order("refuse")
    assert keeper.end() == 0
    refused, down = keeper.events("gang")
    assert refused["state"] == "refused"
    assert refused["reason"] == "--tp-size 3 does not divide 8 heads"
    assert refused["code"] == 2
    assert down["state"] == "down"


def test_a_spawner_that_dies_is_described_with_its_last_line(start_keeper: StartKeeper) -> None:
    keeper = start_keeper()
    keeper.order("die")
    assert keeper.end() == 0
    refused = keeper.state("refused")
    assert "the spawner gave no reason: killed by SIGKILL" in refused["reason"]
    assert refused["reason"].endswith("its log ends: ImportError: api_key=*******************")
    assert refused["code"] == -signal.SIGKILL


def test_what_a_spawner_dead_before_the_order_said_is_evidence(start_keeper: StartKeeper) -> None:
    keeper = start_keeper(spawner=[*SPAWNER, "--dead"])
    keeper.order("rank-0=sleep")
    assert keeper.end() == 0
    assert keeper.states() == ["refused", "down"]
    assert keeper.state("refused")["reason"].endswith("exit code 1; its log ends: no torch here")
    assert (keeper.folder / "spawner.log").read_text() == "no torch here\n"


def test_a_stop_while_the_spawner_works_leaves_nothing(start_keeper: StartKeeper) -> None:
    keeper = start_keeper()
    keeper.order("hang")
    wait_for(lambda: "hanging" in keeper.log("spawner"), "the spawner")
    keeper.stop()
    assert keeper.end() == 0
    assert keeper.states() == ["stopping", "down"]
    assert keeper.left() == []


def test_a_program_that_does_not_exist_is_a_refusal(start_keeper: StartKeeper) -> None:
    keeper = start_keeper(spawner=None)
    engine = keeper.engine("") | {"argv": ["no-such-engine"]}
    keeper.order(processes=[engine])
    assert keeper.end() == 0
    assert keeper.states() == ["refused", "down"]
    assert "cannot start engine" in keeper.state("refused")["reason"]
    assert "no-such-engine" in keeper.state("refused")["reason"]


@pytest.mark.parametrize(
    ("line", "reason"),
    [({}, "it has no 'spawner'"), ([], "list indices"), ("x", "string indices")],
)
def test_a_broken_order_is_refused_in_one_line(
    start_keeper: StartKeeper, line: object, reason: str
) -> None:
    keeper = start_keeper()
    keeper.send(line)
    assert keeper.end() == 2
    assert keeper.process.stderr is not None
    said = keeper.process.stderr.read().decode()
    assert said.startswith("the order is broken: ")
    assert reason in said
    assert said.count("\n") == 1


def test_a_folder_that_cannot_be_written_starts_nothing(
    start_keeper: StartKeeper, tmp_path: Path
) -> None:
    keeper = start_keeper()
    keeper.folder = tmp_path / "missing"
    keeper.order("rank-0=sleep")
    assert keeper.end() == 1
    assert keeper.process.stderr is not None
    assert b"nothing was started" in keeper.process.stderr.read()


def test_the_keeper_says_who_it_is_and_writes_for_its_owner_only(start_keeper: StartKeeper) -> None:
    keeper = start_keeper()
    keeper.order("rank-0=sleep")
    keeper.up()
    identity = json.loads((keeper.folder / "keeper.json").read_text())
    assert identity["pid"] == keeper.pid
    assert identity["boot_id"] == procfs.boot_id()
    assert procfs.is_alive(keeper.pid, identity["start_ticks"])
    modes = {path.name: path.stat().st_mode & 0o777 for path in keeper.folder.iterdir()}
    assert set(modes.values()) == {0o600}
    assert {"events.jsonl", "keeper.log", "rank-0.log", "spawner.times"} <= set(modes)


def test_the_keeper_is_small(start_keeper: StartKeeper) -> None:
    keeper = start_keeper()
    keeper.order(*(f"rank-{rank}=sleep" for rank in range(8)))
    keeper.up()
    status = Path(f"/proc/{keeper.pid}/status").read_text()
    kib = int(status.split("VmRSS:")[1].split()[0])
    assert kib <= 15 * 1024


def test_the_keeper_imports_the_standard_library_only() -> None:
    code = """
import sys
before = set(sys.modules)
import panel.supervisor.keeper.__main__
print(*{name.split(".")[0] for name in set(sys.modules) - before} - sys.stdlib_module_names)
"""
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, check=True, text=True)
    assert done.stdout.split() == ["panel"]
