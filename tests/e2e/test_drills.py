"""Drills: for each kind of fault that the engine can produce, from the fault to the screen.

One supervisor lives through all of them, and one panel watches, so that each costs a warm launch.
"""

from __future__ import annotations

import json
import re
import time
from collections.abc import Callable, Iterator
from typing import Any

import httpx
import pytest

from panel.server.faults import Kind
from tests.conftest import unused_port
from tests.e2e.conftest import Node, fresh_node
from tests.e2e.terminal import Terminal

pytestmark = [pytest.mark.e2e, pytest.mark.timeout(180)]

HUNG_WITHIN_S = 45.0


@pytest.fixture(scope="module")
def range_node(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Node]:
    """The node that all drills share."""
    with fresh_node(tmp_path_factory.mktemp("drills") / "home", unused_port()) as node:
        node.ok("up", "--wait")
        yield node


@pytest.fixture(scope="module")
def watching(range_node: Node) -> Iterator[Terminal]:
    """A panel that watches all drills from the node screen, at its smallest size."""
    terminal = range_node.terminal()
    terminal.wait_for("#")
    yield terminal
    terminal.close()


@pytest.fixture
def panel(range_node: Node) -> Iterator[Terminal]:
    """A panel that watches."""
    terminal = range_node.terminal(100, 40)
    terminal.wait_for("#")
    yield terminal
    terminal.close()


def drill(node: Node, fault: str) -> None:
    """Launch with a fault, and wait until it serves or has failed."""
    done = node.run("relaunch", "--reset", "--set", f"fault={fault}", "--wait", "--json")
    assert done.stdout, done.stderr


def launch_when(node: Node, true: Callable[[Any], bool], seconds: float = 30.0) -> Any:
    """Return the launch as soon as something is true of it."""
    deadline = time.monotonic() + seconds
    while not true(launch := node.json("status")["launch"]):
        assert time.monotonic() < deadline, (launch["state"], launch.get("verdict"))
        time.sleep(0.1)
    return launch


FAULTS = [
    (3, "capture", "assert", "AssertionError"),
    (0, "weights", "exception", "RuntimeError"),
    (6, "kv_cache", "oom", "memory"),
    (5, "warmup", "kill", "SIGKILL"),
    (2, "workspace", "segv", "segmentation fault"),
    (1, "draft", "exit", "exit code 7"),
    (4, "dist_init", "partial-traceback", "SIGKILL"),
    (7, "serving,after=0", "exception", "RuntimeError"),
]


@pytest.mark.parametrize(("rank", "phase", "kind", "words"), FAULTS)
def test_a_fault_is_named(
    range_node: Node, watching: Terminal, rank: int, phase: str, kind: str, words: str
) -> None:
    """Rank, kind and phase stand in the verdict, in its file, and on the screen, whatever fell
    with it."""
    drill(range_node, f"rank={rank},kind={kind},phase={phase}")
    watching.wait_for(
        lambda screen: f"rank {rank} failed first" in screen and words in " ".join(screen.split())
    )
    launch = launch_when(range_node, lambda launch: launch["state"] not in ("serving", "failing"))

    verdict = launch["verdict"]
    assert (launch["state"], verdict["status"], verdict["final"]) == ("crashed", "crashed", True)
    assert verdict["root_ranks"] == [rank]
    assert verdict["phase"] == phase.partition(",")[0]
    assert words in verdict["headline"]
    assert str(rank) not in verdict["secondary"]
    told = verdict["secondary"]
    assert {told[str(other)] for other in range(8) if other != rank} <= {
        "victim", "killed_by_gang_stop",
    }  # fmt: skip
    file = range_node.home / "launches" / f"{launch['id']:06d}" / "verdict.json"
    assert json.loads(file.read_text()) == verdict


def test_every_kind_has_its_drill() -> None:
    """No way to fail is left out here; one needs a GPU and is in tools/gpu_probe_check.py."""
    named = {kind for _, _, kind, _ in FAULTS} | {"hang", "slow", "nan"}
    assert named == set(Kind) - {Kind.ILLEGAL_ACCESS}


def test_a_hang_is_named_while_it_lasts(range_node: Node, watching: Terminal) -> None:
    """A rank that stands still is told from those that wait for it; nothing is stopped for it."""
    drill(range_node, "rank=5,phase=serving,kind=hang,after=0")
    launch = launch_when(range_node, lambda launch: launch.get("verdict"), HUNG_WITHIN_S)

    verdict = launch["verdict"]
    assert (launch["state"], verdict["status"], verdict["final"]) == ("serving", "hung", False)
    assert (verdict["root_ranks"], verdict["phase"]) == ([5], "serving")
    assert "rank 5 made no step" in range_node.ok("status")
    watching.wait_for("rank 5 made no step")
    offline = range_node.json("triage")
    assert (offline["status"], offline["root_ranks"]) == ("hung", [5])
    assert any("rank 5 apart from the others" in each["text"] for each in offline["evidence"])
    range_node.ok("down", "--now")
    for command in ("triage", "history"):
        assert "it hung before: rank 5 made no step" in range_node.ok(command)


def test_what_a_gang_survives_gives_no_alarm(range_node: Node, watching: Terminal) -> None:
    """A slow rank and a model full of NaN are the requests' trouble, not the gang's."""
    drill(range_node, "rank=2,phase=serving,kind=slow,after=0")
    assert range_node.complete("The", tokens=2)
    assert range_node.json("status")["launch"].get("verdict") is None

    drill(range_node, "rank=2,phase=serving,kind=nan,after=0")
    body = {"model": "moe-tiny", "prompt": "The", "max_tokens": 2}
    answer = httpx.post(f"{range_node.url}/v1/completions", json=body, timeout=30)
    assert answer.status_code == 500
    assert "NaN" in answer.text
    launch = launch_when(range_node, lambda launch: launch.get("verdict"), 10.0)
    verdict = launch["verdict"]
    assert (launch["state"], verdict["status"], verdict["kind"]) == (
        "serving", "running", "nan_logits",
    )  # fmt: skip
    assert verdict["root_ranks"] == [2]
    range_node.ok("triage", "--check")
    watching.wait_for("requests fail: rank 2 computes NaN")
    watching.wait_for(lambda screen: len(re.findall(r"^ ● +\d +serving", screen, re.M)) == 8)
    assert "failed" not in watching.text


def test_a_crash_while_serving_on_screen(range_node: Node, panel: Terminal) -> None:
    """The node screen names the root; triage shows when all fell, reports, opens the log."""
    drill(range_node, "rank=5,phase=serving,kind=segv,after=1")
    screen = panel.wait_for(lambda screen: "rank 5 failed first" in screen and "t triage" in screen)
    assert "segmentation fault" in screen
    verdict = range_node.json("status")["launch"]["verdict"]
    assert (verdict["kind"], verdict["family"]) == ("sigsegv", "process-death")
    assert re.search(r"Python stood at server/faults\.py:\d+ in fire", verdict["cause"])

    panel.press("t")
    screen = panel.wait_for(
        lambda screen: len(re.findall("^ [0-7] ▁.* victim ", screen, re.M)) == 7
    )
    assert re.search(r"^ 5 ▁▁▁✖.* 0\.00s  root ", screen, re.MULTILINE)

    panel.press("y")
    panel.wait_for("report copied, and saved")
    number = range_node.json("status")["launch"]["id"]
    report = range_node.home / "launches" / f"{number:06d}" / "report.md"
    assert "| rank 5 | +0.00 s |" in report.read_text()

    panel.press("o")
    panel.wait_for(lambda screen: "logs" in screen and "Fatal Python error" in screen)


def test_a_failed_start_on_screen(range_node: Node, panel: Terminal) -> None:
    """The frame that failed stands in its source; the advice is one key from serving again."""
    drill(range_node, "rank=3,phase=capture,kind=assert")
    panel.wait_for("rank 3 failed first: AssertionError")
    panel.press("t")
    panel.wait_for(lambda screen: bool(re.search(r"▸ +\d+ +raise AssertionError", screen)))
    panel.press("enter")
    panel.wait_for("server/rank.py")

    panel.press("a")
    panel.wait_for(lambda screen: "can be launched" in screen and "was rank=3" in screen)
    panel.press("r")
    panel.wait_for(lambda screen: len(re.findall(r"^ ● +\d +serving", screen, re.MULTILINE)) == 8)
    assert "fault" not in range_node.json("status")["launch"]["flags"]
