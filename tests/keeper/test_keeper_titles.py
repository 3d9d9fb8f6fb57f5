"""Ranks that an engine's launcher starts: known by their titles, members from then on."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from panel.supervisor import procfs
from tests.keeper.support import KeeperProcess, wait_for

StartKeeper = Callable[..., KeeperProcess]

TITLED = """
import os, signal, sys
sys.path.insert(0, sys.argv[1])
from tests.support.replay import set_title
for title in sys.argv[2:]:
    if os.fork() == 0:
        set_title(title)
        signal.pause()
signal.pause()
"""
ROOT = str(Path(__file__).parents[2])


def titles(keeper: KeeperProcess, count: int) -> dict[str, dict[str, Any]]:
    wait_for(lambda: len(keeper.events("title")) == count, "the titles")
    return {event["title"]: event for event in keeper.events("title")}


def test_a_rank_is_a_member_and_its_death_the_gangs(start_keeper: StartKeeper) -> None:
    keeper = start_keeper(spawner=None)
    names = ("sglang::scheduler_TP0", "sglang::scheduler_TP1", "sglang::detokenizer", "gcc")
    keeper.order(processes=[keeper.engine(TITLED, ROOT, *names)])
    found = titles(keeper, 3)
    assert {name: event.get("rank") for name, event in found.items()} == {
        "sglang::scheduler_TP0": 0,
        "sglang::scheduler_TP1": 1,
        "sglang::detokenizer": None,
    }
    compiler = {event["pid"] for event in keeper.events("spawn")[1:]} - {
        event["pid"] for event in found.values()
    }

    os.kill(compiler.pop(), signal.SIGKILL)
    wait_for(lambda: keeper.events("exit"), "the end of the compiler")
    assert keeper.states() == ["up"]
    os.kill(found["sglang::scheduler_TP1"]["pid"], signal.SIGKILL)

    assert keeper.end() == 0
    assert keeper.states() == ["up", "failing", "down"]
    assert keeper.state("failing")["reason"].startswith("sglang::scheduler_TP1 (pid ")
    assert keeper.left() == []


@pytest.fixture
def foreign() -> Iterator[subprocess.Popen[bytes]]:
    """A rank that is not below any keeper, as in a container."""
    code = TITLED.replace("os.fork() == 0", "True")
    argv = [sys.executable, "-c", code, ROOT, "VLLM::Worker_TP1", "x" * 40]
    with subprocess.Popen(argv, start_new_session=True) as process:
        yield process
        process.kill()


def test_a_container_is_watched_and_stopped_by_its_own_commands(
    start_keeper: StartKeeper, foreign: subprocess.Popen[bytes]
) -> None:
    wait_for(lambda: procfs.command_line(foreign.pid).startswith("VLLM"), "its title")
    keeper = start_keeper(spawner=None)
    client = ["tail", f"--pid={foreign.pid}", "-f", "/dev/null"]
    reached = {"pids": ["echo", f"{foreign.pid}"], "stop": ["kill", f"{foreign.pid}"]}
    keeper.order(processes=[keeper.engine("") | reached | {"argv": client}], grace_s=10.0)
    (title,) = titles(keeper, 1).values()
    assert (title["pid"], title["rank"]) == (foreign.pid, 1)

    keeper.stop()

    wait_for(lambda: foreign.poll() is not None, "the container")
    assert keeper.end() == 0
    assert foreign.returncode == -signal.SIGTERM
    codes = {event["pid"]: event["code"] for event in keeper.events("exit")}
    assert codes[foreign.pid] is None
    assert keeper.states() == ["up", "stopping", "down"]
    assert keeper.events("signal") == []
    assert {event["source"] for event in keeper.events("spawn")} == {"engine"}
