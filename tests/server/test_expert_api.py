"""Experts as an operator sees them over HTTP: memory by category, load, a rebalance."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.server.live import Live, live_engine

FLAGS = (
    "--tp-size=4",
    "--ep-size=4",
    "--moe-a2a-backend=auto",
    "--dp-attention",
    "--ep-num-redundant-experts=4",
)


@pytest.fixture(scope="module")
def live(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Live]:
    with live_engine(tmp_path_factory.mktemp("live"), *FLAGS) as live:
        yield live
        assert live.stop() == 0
        assert "ERROR" not in live.log.read_text()


def test_the_memory_table_has_every_rank_predicted_and_measured(live: Live) -> None:
    started = live.get("/server_info")["started"]
    assert len(started["memory"]) == 4
    for memory in started["memory"]:
        assert list(memory["measured"]) == [
            "weights", "shared_experts", "workspace", "draft", "kv_cache", "graphs", "other",
        ]  # fmt: skip
        assert memory["predicted"].items() <= memory["measured"].items()
        assert memory["measured"]["shared_experts"] > 0
        assert memory["weights_read"] > 0
    assert any(path == "shm all-to-all" for _, path, _ in started["collectives"])
    assert "memory in MiB: weights" in live.log.read_text()


def test_a_rebalance_moves_experts_and_changes_no_text(live: Live) -> None:
    before = live.complete(max_tokens=30)
    assert 0 < live.samples()["moepanel_expert_balancedness"] <= 1
    status, report = live.post("/eplb/rebalance", b"")
    assert status == 200
    assert report["moved"] > 0
    assert report["after"] >= report["before"]
    assert live.complete(max_tokens=30) == before
    assert live.samples()["moepanel_rebalances_total"] == 1
