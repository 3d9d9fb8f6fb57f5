"""SGLang and vLLM under the panel without a GPU: captures of them are played again."""

from __future__ import annotations

import json
import os
import shutil
import signal
import socket
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import msgspec
import pytest

from panel.domain.events import PhaseEvent
from panel.domain.plan import Plan
from panel.domain.snapshot import LaunchView
from panel.domain.states import LaunchState
from panel.domain.wire import LaunchRecord
from tests.supervisor.support import Supervised, supervised, wait_for
from tests.support.engines import CONSTRUCTED, replay_profile
from tests.triage.score import allowed_roots, forbidden, roots_of

pytestmark = pytest.mark.e2e

ENGINES = ("sglang", "vllm")
CAPTURES = Path(__file__).parents[3] / "shared/reallogs"
FAULTS = (
    "sglang-b_kill_tp1", "sglang-e_mem_fraction_098", "sglang-earlier-c_stop_tp1",
    "sglang-k_kill_detok", "vllm-b_kill_rank1", "vllm-d_no_kv_room", "vllm-j_kill_api",
)  # fmt: skip
FAST = 15.0
"""Times as fast as captured: the keeper looks for newcomers twice a second."""
# Not every phase of a fast launch is seen, but those that are come in this order.
ORDER = ["dist_init", "weights", "kv_cache", "capture", "warmup", "serving"]

GIB = 1 << 30
TOOK = {
    "sglang": {
        "weights": round(32.1 * GIB), "KV cache": round(12.5 * GIB), "graphs": GIB // 2,
        "KV tokens": 200_000,
    },
    "vllm": {
        "weights": 31 * GIB, "KV cache": 20 * GIB, "graphs": GIB // 2, "KV tokens": 320_000,
    },
}  # fmt: skip
REAL_TOKENS = {"sglang-a_clean": 9_164_457, "vllm-a_clean": 15_495_424}

needs_captures = pytest.mark.skipif(
    not CAPTURES.is_dir(), reason="no captures of real engines beside the checkout"
)


@pytest.fixture
def node(tmp_path: Path) -> Iterator[Supervised]:
    """A supervisor of this test's own."""
    (tmp_path / "home").mkdir()
    (tmp_path / "home/config.toml").write_text("warm = false\n")
    program = [sys.executable, "-m", "tests.support.replay_supervisor"]
    with supervised(tmp_path / "home", program) as node:
        yield node


def up(node: Supervised, capture: Path, port: int) -> int:
    """Launch what plays a capture; return its number."""
    profile = replay_profile(node.home, capture, FAST, port)
    return int(node.post("/v1/up", profile=profile)["launch"])


def serving(node: Supervised, capture: Path, port: int) -> LaunchView:
    """Launch what plays a capture; wait until it serves and its ranks are known."""
    number = up(node, capture, port)
    node.wait_launch(number, LaunchState.SERVING)

    def known() -> LaunchView | None:
        launch = node.snapshot().launch
        phases = [each.phase for each in launch.ranks] if launch else []
        return launch if launch and phases == ["serving"] * launch.world_size else None

    return wait_for(known, "the ranks")


def gone(node: Supervised, number: int, *states: LaunchState) -> LaunchView:
    """Wait until nothing is left of a launch."""
    launch = node.wait_launch(number, *states)
    assert node.processes(launch.uuid) == []
    assert launch.verdict is not None
    return launch


@pytest.mark.parametrize("name", ENGINES)
def test_a_launch_goes_through_its_phases_serves_and_is_stopped(
    node: Supervised, name: str, free_port: int
) -> None:
    launch = serving(node, CONSTRUCTED / name, free_port)

    assert (launch.engine, launch.chips[0]) == (name, "tp2")
    assert [each.rank for each in launch.ranks] == [0, 1]
    if name == "sglang":
        wait_for(
            lambda: (seen := node.snapshot().launch) and "throughput" in seen.ranks[0].last_line,
            "a line about its speed",
        )
    metrics = wait_for(lambda: (seen := node.snapshot().launch) and seen.metrics, "its figures")
    assert (metrics.running, metrics.waiting) == (1, 3)
    assert (metrics.kv_used * 4, metrics.kv_total) in ((200_000, 200_000), (320_000, 320_000))
    took = {each.part: each.measured for each in (node.snapshot().launch or launch).memory}
    assert took == TOOK[name]
    shown = subprocess.run(
        [sys.executable, "-m", "panel.cli", "plan", "--launch", "-1", "--json"],
        env=node.env,
        capture_output=True,
        check=True,
    )
    plan = msgspec.json.decode(shown.stdout, type=Plan)
    assert {each.part: each.measured for each in plan.measured} == took
    for rank in (0, 1):
        phases = [each for each in node.events(launch.id) if isinstance(each, PhaseEvent)]
        entered = [each.phase for each in phases if each.rank == rank and each.phase in ORDER]
        assert entered == sorted(entered, key=ORDER.index)
        assert entered[-1] == "serving"

    node.post("/v1/down")
    ended = gone(node, launch.id, LaunchState.STOPPED)
    assert ended.verdict is not None
    assert (ended.verdict.status, ended.verdict.kind) == ("stopped", "operator_stop")


@pytest.mark.parametrize("name", ENGINES)
def test_a_killed_rank_is_named_and_takes_the_gang_along(
    node: Supervised, name: str, free_port: int
) -> None:
    launch = serving(node, CONSTRUCTED / name, free_port)

    os.kill(launch.ranks[1].pid, signal.SIGKILL)
    failing = node.wait_launch(launch.id, LaunchState.FAILING, LaunchState.CRASHED)
    assert failing.verdict is not None
    assert (failing.verdict.status, failing.verdict.root_ranks) == ("crashed", (1,))

    node.post("/v1/down", now=True)
    ended = gone(node, launch.id, LaunchState.CRASHED)
    assert ended.verdict is not None
    assert ended.verdict.root_ranks == (1,)


def test_a_killed_api_server_leaves_no_rank_behind(node: Supervised, free_port: int) -> None:
    launch = serving(node, CONSTRUCTED / "vllm", free_port)
    server = next(each for each in launch.processes if not each.title)

    os.kill(server.pid, signal.SIGKILL)
    ended = gone(node, launch.id, LaunchState.CRASHED)

    assert ended.verdict is not None
    assert (ended.verdict.kind, ended.verdict.root_ranks) == ("frontend_died", ())


@pytest.mark.parametrize("name", ENGINES)
def test_what_cannot_work_is_refused_before_the_launch(
    node: Supervised, name: str, free_port: int
) -> None:
    profile = replay_profile(node.home, CONSTRUCTED / name, FAST, free_port)
    status, unknown = node.refused("/v1/up", profile=profile, set={"no-such-flag": "1"})
    assert (status, unknown.error.kind) == (400, "usage")
    assert "no-such-flag" in unknown.error.message

    with socket.create_server(("127.0.0.1", free_port)):
        status, refused = node.refused("/v1/up", profile=profile)
    assert (status, refused.error.kind) == (422, "refused")
    assert f"port {free_port} of 127.0.0.1 is taken" in refused.error.message
    assert node.snapshot().launch is None


def test_a_port_that_is_lost_later_ends_the_launch(
    node: Supervised, tmp_path: Path, free_port: int
) -> None:
    capture = tmp_path / "late"
    shutil.copytree(CONSTRUCTED / "sglang", capture)
    log = (capture / "engine.log").read_bytes()
    begun = log.index(b"[2026-05-04 10:00:17] INFO:     Application startup")
    (capture / "engine.log").write_bytes(
        log[:begun]
        + b"[2026-05-04 10:00:17] ERROR:    [Errno 98] error while attempting to bind on"
        b" address ('127.0.0.1', 30000): address already in use\n"
    )
    pairs = [json.loads(line) for line in (capture / "engine.times").read_text().splitlines()]
    kept = [pair for pair in pairs if pair["offset"] <= begun]
    (capture / "engine.times").write_text("".join(f"{json.dumps(pair)}\n" for pair in kept))

    ended = gone(node, up(node, capture, free_port), LaunchState.CRASHED)

    assert ended.verdict is not None
    assert ended.verdict.kind == "port_in_use"
    assert ended.ready_s is None


PARSERS = {
    "sglang": "usage: launch_server.py [-h] [--tp-size TP_SIZE]\n"
    "launch_server.py: error: unrecognized arguments: --tp-sise 2\n",
    "vllm": "usage: vllm serve [model_tag] [options]\n"
    "vllm serve: error: argument --max-model-len: invalid value: '4q'\n",
}


@pytest.mark.parametrize("name", ENGINES)
def test_what_the_engine_s_own_parser_refuses_is_refused_with_its_words(
    node: Supervised, name: str, tmp_path: Path, free_port: int
) -> None:
    capture = tmp_path / "refused"
    capture.mkdir()
    shutil.copy(CONSTRUCTED / name / "launch.json", capture)
    (capture / "engine.log").write_text(PARSERS[name])
    (capture / "engine.times").write_text('{"t": 3.0, "offset": 0}\n')
    (capture / "events.jsonl").write_text(
        '{"t": 0.001, "kind": "spawn", "source": "engine", "pid": 200, "ppid": 90}\n'
        '{"t": 4.0, "kind": "exit", "pid": 200, "code": 2}\n'
    )

    ended = gone(node, up(node, capture, free_port), LaunchState.REFUSED)

    assert ended.verdict is not None
    assert (ended.verdict.status, ended.verdict.root_ranks) == ("refused", ())
    words = PARSERS[name].splitlines()[-1].partition("error: ")[2]
    assert words in ended.verdict.headline
    assert any(words in each.text for each in ended.verdict.evidence)
    (row,) = node.get("/v1/launches", list[LaunchRecord])
    assert (row.state, row.outcome) == (LaunchState.REFUSED, ended.verdict.headline)


@needs_captures
@pytest.mark.parametrize("name", ["sglang-a_clean", "vllm-a_clean"])
def test_a_real_launch_serves_and_stops(node: Supervised, name: str, free_port: int) -> None:
    launch = serving(node, CAPTURES / name, free_port)
    took = {each.part: each.measured for each in launch.memory}
    assert took["KV tokens"] == REAL_TOKENS[name]
    assert 2.1 < took["weights"] / GIB < 2.2
    assert took["graphs"] > 0
    node.post("/v1/down")
    ended = gone(node, launch.id, LaunchState.STOPPED)
    assert ended.verdict is not None
    assert ended.verdict.status == "stopped"


@needs_captures
@pytest.mark.parametrize("name", FAULTS)
def test_a_real_fault_is_judged_as_it_happens(node: Supervised, name: str, free_port: int) -> None:
    expect = json.loads((CAPTURES / name / "expect.json").read_text())
    number = up(node, CAPTURES / name, free_port)

    def judged() -> LaunchView | None:
        launch = node.snapshot().launch
        verdict = launch.verdict if launch else None
        return launch if verdict and verdict.status in ("crashed", "hung") else None

    if wait_for(judged, "a verdict").verdict.status == "hung":
        node.post("/v1/down", now=True)
    ended = gone(node, number, LaunchState.CRASHED, LaunchState.STOPPED)

    assert ended.verdict is not None
    assert ended.verdict.status in expect["status"]
    assert roots_of(ended.verdict) in allowed_roots(expect)
    assert not forbidden(ended.verdict, expect)
