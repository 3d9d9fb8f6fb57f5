"""Real processes: deaths, the gang policy, and that nothing is left."""

from __future__ import annotations

import os
import random
import re
import signal
from collections.abc import Callable

import pytest

from panel.supervisor import procfs
from tests.keeper.support import KeeperProcess, wait_for

StartKeeper = Callable[..., KeeperProcess]
RANKS = [f"rank-{rank}" for rank in range(8)]


def signals(keeper: KeeperProcess, pid: int) -> list[int]:
    return [event["sig"] for event in keeper.events("signal") if event["pid"] == pid]


def code(keeper: KeeperProcess, pid: int) -> int | None:
    codes: dict[int, int | None] = {event["pid"]: event["code"] for event in keeper.events("exit")}
    return codes[pid]


def test_exits_are_noted_in_the_order_of_the_deaths(start_keeper: StartKeeper) -> None:
    """Each rank ends the moment it sees the death of the one before: all within milliseconds."""
    ranks = random.Random(5).sample(RANKS, 8)
    keeper = start_keeper()
    chain = [f"{rank}=chain:{10 + number}" for number, rank in enumerate(ranks[1:])]
    keeper.order(f"{ranks[0]}=sleep", *chain, evidence_s=5.0)
    pids = keeper.up()
    os.kill(pids[ranks[0]], signal.SIGKILL)
    assert keeper.end() == 0
    exits = keeper.events("exit")
    assert [event["pid"] for event in exits] == [pids[rank] for rank in ranks]
    assert [event["code"] for event in exits] == [-9, *range(10, 17)]
    assert exits[-1]["t"] - exits[0]["t"] < 1.0
    assert keeper.states() == ["up", "failing", "down"]
    # Nobody survived: there was nothing to wait for and nothing to signal.
    assert keeper.events("signal") == []


def test_a_death_ends_the_gang_and_names_the_rank(start_keeper: StartKeeper) -> None:
    keeper = start_keeper()
    keeper.order(*(f"{rank}=sleep" for rank in RANKS), "frontend=drain", evidence_s=0.3)
    pids = keeper.up()
    os.kill(pids["rank-3"], signal.SIGSEGV)
    assert keeper.end() == 0
    failing, down = keeper.events("gang")[1:]
    assert failing["reason"] == f"rank 3 (pid {pids['rank-3']}) killed by SIGSEGV"
    assert down["state"] == "down"
    assert down["alive"] == []
    assert all(event["t"] - failing["t"] >= 0.3 for event in keeper.events("signal"))
    assert {event["sig"] for event in keeper.events("signal")} == {signal.SIGTERM}
    assert code(keeper, pids["frontend"]) == 0
    assert code(keeper, pids["rank-0"]) == -signal.SIGTERM
    assert keeper.left() == []


def test_a_process_that_ignores_term_is_killed_after_the_grace(start_keeper: StartKeeper) -> None:
    keeper = start_keeper()
    keeper.order("rank-0=sleep", "rank-1=ignore-term", grace_s=0.3)
    pids = keeper.up()
    os.kill(pids["rank-0"], signal.SIGKILL)
    assert keeper.end() == 0
    assert signals(keeper, pids["rank-1"]) == [signal.SIGTERM, signal.SIGKILL]
    term, kill = keeper.events("signal")
    assert kill["t"] - term["t"] >= 0.3
    assert code(keeper, pids["rank-1"]) == -signal.SIGKILL


def test_an_operators_stop_is_no_failure(start_keeper: StartKeeper) -> None:
    keeper = start_keeper()
    keeper.order("rank-0=drain", "rank-1=drain", grace_s=10.0)
    pids = keeper.up()
    keeper.stop()
    assert keeper.end() == 0
    assert keeper.states() == ["up", "stopping", "down"]
    assert {code(keeper, pid) for pid in pids.values()} == {0}
    assert "drained" in keeper.log("rank-0")


@pytest.mark.parametrize("second", [signal.SIGTERM, signal.SIGINT])
def test_who_insists_gets_a_kill(start_keeper: StartKeeper, second: int) -> None:
    keeper = start_keeper()
    keeper.order("rank-0=ignore-term", grace_s=60.0)
    pids = keeper.up()
    keeper.stop()
    keeper.state("stopping")
    keeper.stop(second)
    assert keeper.end() == 0
    assert signals(keeper, pids["rank-0"]) == [signal.SIGTERM, signal.SIGKILL]
    assert keeper.states() == ["up", "stopping", "down"]


def test_sigint_kills_at_once(start_keeper: StartKeeper) -> None:
    keeper = start_keeper()
    keeper.order("rank-0=drain", grace_s=60.0)
    pids = keeper.up()
    keeper.stop(signal.SIGINT)
    assert keeper.end() == 0
    assert signals(keeper, pids["rank-0"]) == [signal.SIGKILL]
    assert keeper.states() == ["up", "stopping", "down"]


def test_a_hangup_changes_nothing(start_keeper: StartKeeper) -> None:
    keeper = start_keeper()
    keeper.order("rank-0=sleep")
    keeper.up()
    keeper.stop(signal.SIGHUP)
    keeper.stop()
    assert keeper.end() == 0
    assert keeper.states() == ["up", "stopping", "down"]


def test_an_orphan_is_found_and_ended(start_keeper: StartKeeper) -> None:
    keeper = start_keeper()
    keeper.order("rank-0=orphan")
    pids = keeper.up()
    said = wait_for(lambda: re.search(r"orphan (\d+)\n", keeper.log("rank-0")), "the orphan")
    orphan = int(said.group(1))
    assert orphan in keeper.left()
    os.kill(pids["rank-0"], signal.SIGKILL)
    assert keeper.end() == 0
    assert signals(keeper, orphan) == [signal.SIGKILL]
    assert code(keeper, orphan) == -signal.SIGKILL
    assert keeper.pids()["orphan"] == orphan
    assert keeper.left() == []
    assert procfs.stat(orphan) is None


def test_a_killed_keeper_ends_its_ranks_by_their_lifeline(start_keeper: StartKeeper) -> None:
    keeper = start_keeper()
    keeper.order("rank-0=lifeline", "rank-1=lifeline")
    pids = keeper.up()
    keeper.process.kill()
    wait_for(lambda: all("eof" in keeper.log(source) for source in pids), "EOF in every rank")
    wait_for(lambda: not keeper.left(), "the end of the gang")


def test_forked_ranks_are_found_by_the_keepers_marker(start_keeper: StartKeeper) -> None:
    """A warm spawner was started before the launch had a uuid."""
    keeper = start_keeper()
    keeper.order("rank-0=sleep", "rank-1=sleep")
    pids = keeper.up()
    assert procfs.marked({procfs.LAUNCH_MARKER: keeper.uuid}) == []
    assert keeper.left() == sorted(pids.values())


def test_children_get_no_descriptor_of_the_keeper(start_keeper: StartKeeper) -> None:
    keeper = start_keeper()
    keeper.order("rank-0=sleep")
    pid = keeper.up()["rank-0"]
    assert sorted(os.listdir(f"/proc/{pid}/fd")) == ["0", "1", "2"]
