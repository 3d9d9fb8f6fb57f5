"""The supervisor with the real engine: two ranks of the shipped model."""

from __future__ import annotations

from pathlib import Path

import httpx
import pytest

from panel.domain.states import LaunchState
from tests.supervisor.support import REAL, supervised, wait_for


@pytest.mark.e2e
def test_real_engine_serves_is_measured_and_relaunched(tmp_path: Path, free_port: int) -> None:
    with supervised(tmp_path / "home", REAL) as node:
        view = node.up(port=free_port)
        body = {"model": "moe-tiny", "prompt": "The", "max_tokens": 48, "temperature": 0}
        first = httpx.post(f"{view.url}/v1/completions", json=body, timeout=60).json()
        measured = wait_for(lambda: _busiest(node.snapshot()), "tok/s")
        assert measured > 1
        wait_for(lambda: node.snapshot().supervisor.warm, "the next spawner")

        number = node.post("/v1/relaunch", set={"ep": "on"})["launch"]
        again = node.wait_launch(number, LaunchState.SERVING)

        assert again.chips[:2] == ("tp2", "ep2")
        second = httpx.post(f"{again.url}/v1/completions", json=body, timeout=60).json()
        assert second["choices"][0]["text"] == first["choices"][0]["text"]
        node.post("/v1/shutdown")
        assert node.process is not None
        assert node.process.wait(30) == 0
        assert node.processes(view.uuid) + node.processes(again.uuid) == []


def _busiest(snapshot) -> float:
    metrics = snapshot.launch.metrics if snapshot.launch else None
    return max(metrics.history, default=0.0) if metrics else 0.0
