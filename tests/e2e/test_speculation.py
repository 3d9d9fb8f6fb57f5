"""Speculation turned on and off by a relaunch, as an operator does."""

from __future__ import annotations

import pytest

from tests.e2e.conftest import Node, same_greedy_text

pytestmark = [pytest.mark.e2e, pytest.mark.timeout(180)]

PROMPT = "The history of the world is"


def test_a_relaunch_with_drafts_serves_the_same_text(node: Node) -> None:
    """The plan counts the head's memory, the gang takes it, and the text stays the same."""
    node.ok("up", "--wait")
    plain = node.greedy(PROMPT)
    plan = node.json("plan", "--set", "spec=eagle3:2")
    planned = {line["category"]: line["predicted"] for line in plan["memory"]}
    assert planned["draft"] > 1 << 20

    node.ok("relaunch", "--set", "spec=eagle3:2", "--wait")
    assert "eagle3:2" in node.json("status")["launch"]["chips"]
    for _ in range(3):
        assert same_greedy_text(plain, node.greedy(PROMPT))

    node.ok("relaunch", "--set", "spec=off", "--wait")
    assert same_greedy_text(plain, node.greedy(PROMPT))


def test_a_head_of_another_model_is_refused_by_the_plan(node: Node, tmp_path: object) -> None:
    """Nothing starts; the reason is that of the engine."""
    flags = ("--set", "spec=eagle3", "--set", f"speculative-draft-model-path={tmp_path}")
    result = node.run("plan", *flags)
    assert result.returncode == 1
    assert "no config.json" in result.stdout + result.stderr
