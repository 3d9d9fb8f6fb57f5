"""Weights over a relaunch and a crash, through the commands of an operator."""

from __future__ import annotations

from typing import Any

import httpx
import pytest

from panel.supervisor import procfs
from tests.e2e.conftest import Node, same_greedy_text
from tests.supervisor.support import wait_for

pytestmark = [pytest.mark.e2e, pytest.mark.timeout(180)]

PROMPT = "The engine is"


def weights_read(node: Node) -> int:
    """Return the bytes of the checkpoint that all ranks have read."""
    info: Any = httpx.get(f"{node.url}/server_info", timeout=30).json()
    return sum(int(memory["weights_read"]) for memory in info["started"]["memory"])


def held(node: Node) -> Any:
    """Return what the status tells of the kept weights once both ranks use them, whole."""

    def told() -> Any:
        kept = node.json("status").get("kept") or {}
        figures = [kept.get(name) for name in ("ranks", "whole", "users")]
        return kept if figures == [2, 2, 2] else None

    return wait_for(told, "weights kept for two ranks, whole and in use")


def test_a_relaunch_and_one_after_a_crash_read_no_weights(node: Node) -> None:
    node.ok("up", "--wait", "--set", "keep-weights=true", "--set", "tp-size=2")
    assert weights_read(node) > 0
    text = node.greedy(PROMPT)
    kept = held(node)

    node.ok("relaunch", "--wait", "--set", "mem-fraction-static=0.5")
    assert weights_read(node) == 0
    assert same_greedy_text(text, node.greedy(PROMPT))

    drill = "fault=rank=1,phase=capture,kind=segv"
    assert node.run("relaunch", "--wait", "--set", drill).returncode == 1
    idle = f"by pid {kept['pid']}, for the next launch"
    wait_for(lambda: idle in node.ok("status"), idle)
    node.ok("relaunch", "--wait", "--unset", "fault", "--set", "disable-cuda-graph=true")
    assert weights_read(node) == 0
    assert same_greedy_text(text, node.greedy(PROMPT))

    node.ok("down")
    wait_for(lambda: not node.json("status").get("kept"), "nothing kept")
    assert procfs.state(kept["pid"]) is None
