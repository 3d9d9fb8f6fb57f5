"""Hangs of the real engine: whatever holds up eight ranks, the ladder names who it is.

One supervisor lives through all of them. Nothing here waits for a suspicion, which comes after 10
to 120 s: the steps are taken by hand until the gang has come to its standstill.
"""

from __future__ import annotations

import json
import os
import signal
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import httpx
import pytest

from tests.conftest import unused_port
from tests.e2e.conftest import Node, fresh_node

pytestmark = [pytest.mark.e2e, pytest.mark.timeout(180)]

ROOT = Path(__file__).parents[2]
WANDER = """
import os, pathlib
from panel.server import meeting

barriers = []
made, follow = meeting.Barrier.__init__, meeting.Rendezvous.follow

def make(self, *args):
    made(self, *args)
    barriers.append(self)

def wander(self, roster):
    if roster.rank in (2, 5) and pathlib.Path(os.environ["WANDER"]).exists():
        barriers[0].wait(roster)
    return follow(self, roster)

meeting.Barrier.__init__, meeting.Rendezvous.follow = make, wander
"""
"""Ranks 2 and 5 come to another meeting than the one that all others are in."""


class Drill:
    """The node that all drills share, and the ladder of what runs there."""

    def __init__(self, node: Node, http: httpx.Client) -> None:
        self.node = node
        self._http = http

    @property
    def launch(self) -> Any:
        """The newest launch."""
        return self._http.get("/v1/snapshot").json()["launch"]

    def step(self, step: str) -> str:
        """Do a step of the ladder; return what it found, empty where it cannot be done yet."""
        answer = self._http.post(f"/v1/launches/{self.launch['id']}/hang/{step}").json()
        return next((r.get("result", "") for r in answer.get("rungs", ()) if r["step"] == step), "")

    def until(self, step: str, true: Callable[[str], bool], seconds: float = 30.0) -> str:
        """Repeat a step until it finds what is wanted."""
        deadline = time.monotonic() + seconds
        while not true(found := self.step(step)):
            assert time.monotonic() < deadline, found
            time.sleep(0.1)
        return found

    def fault(self, phase: str) -> None:
        """Launch with a rank 5 that will stand still in a phase."""
        fault = f"fault=rank=5,phase={phase},kind=hang,after=0"
        self.node.ok("relaunch", "--reset", "--set", fault)

    def close(self) -> None:
        """End what runs; nobody is asked to drain."""
        self.node.ok("down", "--now")


@pytest.fixture(scope="module")
def range_node(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Drill]:
    """A node with a warm supervisor."""
    folder = tmp_path_factory.mktemp("hangs")
    with fresh_node(folder / "home", unused_port()) as node:
        (folder / "wander").mkdir()
        (folder / "wander" / "sitecustomize.py").write_text(WANDER)
        path = f"{folder / 'wander'}:{ROOT}"
        profile = (node.home / "profiles" / "tiny.toml").read_text()
        (node.home / "profiles" / "wander.toml").write_text(
            f'{profile}\n[env]\nPYTHONPATH = "{path}"\nWANDER = "{folder / "go"}"\n'
        )
        node.ok("up", "--wait")
        socket = node.json("status")["supervisor"]["socket"]
        transport = httpx.HTTPTransport(uds=socket)
        with httpx.Client(transport=transport, base_url="http://node", timeout=40) as http:
            yield Drill(node, http)


@pytest.fixture
def drill(range_node: Drill) -> Iterator[Drill]:
    """That node; what a drill leaves is ended."""
    yield range_node
    range_node.close()


@pytest.mark.parametrize(
    "phase",
    ["dist_init", "weights", "workspace", "draft", "kv_cache", "capture", "warmup", "serving"],
)
def test_the_rank_that_hangs_in_a_phase(drill: Drill, phase: str) -> None:
    """Its peers wait in a meeting that it never entered; its stack is the odd one."""
    drill.fault(phase)
    found = drill.until("stacks", lambda found: ": fire (" in found)
    assert found.startswith("rank 5 apart from the others: fire (panel/server/faults.py")
    drill.until("look", lambda found: "rank 5 never entered meeting" in found)
    ranks = {each["rank"]: each["phase"] for each in drill.launch["processes"]}
    assert ranks[5] == phase


def test_the_rank_that_somebody_stopped(drill: Drill) -> None:
    """It is told from one that hangs by itself, and goes on where it was."""
    drill.node.ok("relaunch", "--reset", "--wait")
    assert drill.step("stacks") == "rank 0 waits for requests, the others for its next step"
    pid = next(each["pid"] for each in drill.launch["processes"] if each["rank"] == 3)
    os.kill(pid, signal.SIGSTOP)
    try:
        drill.until("look", lambda found: "rank 3 never entered meeting" in found)
        found = drill.until("stacks", lambda found: "stopped by a signal" in found)
        assert found.startswith("rank 3 apart from the others: stopped by a signal in ")
    finally:
        os.kill(pid, signal.SIGCONT)
    assert drill.node.complete("The", tokens=2)


def test_ranks_in_another_collective(drill: Drill) -> None:
    """All have entered as many meetings and wait: the stacks tell who is in the wrong one."""
    drill.node.ok("relaunch", "--profile", "wander", "--wait", "--reset")
    folder = drill.node.home.parent
    (folder / "go").touch()
    drill.until("look", lambda found: "all ranks wait in meeting" in found)
    found = drill.step("stacks")
    assert found.startswith("ranks 2, 5 apart from the others"), found
    launch = drill.launch
    kept = sorted((drill.node.home / f"launches/{launch['id']:06d}/stacks").glob("*.json"))
    groups = json.loads(kept[-1].read_text())["groups"]
    assert groups[0]["ranks"] == [2, 5]
    assert "wander" in [frame["name"] for frame in groups[0]["frames"]]
