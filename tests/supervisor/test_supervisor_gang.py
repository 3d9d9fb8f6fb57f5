"""Launching, stopping and losing a gang, with real processes that need no torch."""

from __future__ import annotations

import os
import signal

import httpx
import pytest

from panel.domain.events import Gang, Operator
from panel.domain.snapshot import LaunchView
from panel.domain.states import LaunchState, ProcessState
from panel.domain.wire import LaunchRecord
from tests.supervisor.support import Supervised, wait_for


def rank(view: LaunchView, number: int) -> int:
    return next(each.pid for each in view.ranks if each.rank == number)


def test_launch_serves_and_stops(node: Supervised, free_port: int) -> None:
    view = node.up(port=free_port)

    assert [each.source for each in view.processes] == ["rank-0", "rank-1", "frontend"]
    assert {each.state for each in view.processes} == {ProcessState.SERVING}
    assert view.ready_s is not None
    assert view.ready_s <= view.t
    assert view.url == f"http://127.0.0.1:{free_port}"
    assert httpx.get(f"{view.url}/ready").status_code == 200
    figures = wait_for(lambda: _figures(node), "tok/s")
    assert figures.tok_s == pytest.approx(100, rel=0.5)
    assert (figures.running, figures.kv_total) == (2, 1000)

    assert node.post("/v1/down")["launch"] == view.id
    stopped = node.wait_launch(view.id, LaunchState.STOPPED)

    assert node.processes(view.uuid) == []
    assert stopped.verdict is not None
    assert (stopped.verdict.status, stopped.verdict.final) == ("stopped", True)
    assert {each.state for each in stopped.processes} == {ProcessState.STOPPED}
    record = node.get("/v1/launches/1", LaunchRecord)
    assert record.state is LaunchState.STOPPED
    assert record.ready_s == pytest.approx(view.ready_s)
    assert set(record.phases) >= {"weights", "kv_cache", "capture"}
    assert node.post("/v1/down")["launch"] is None


def _figures(node: Supervised):
    launch = node.snapshot().launch
    metrics = launch.metrics if launch else None
    return metrics if metrics and len(metrics.history) > 1 else None


def test_assertion_in_capture_names_the_rank(node: Supervised, free_port: int) -> None:
    drill = {"tp-size": "4", "port": str(free_port), "fault": "rank=3,phase=capture,kind=assert"}
    number = node.post("/v1/up", set=drill)["launch"]

    failing = node.wait_launch(number, LaunchState.FAILING, LaunchState.CRASHED)
    assert failing.verdict is not None
    assert failing.verdict.t_first is not None
    assert failing.verdict.t - failing.verdict.t_first < 0.5

    crashed = node.wait_launch(number, LaunchState.CRASHED)
    verdict = crashed.verdict
    assert verdict is not None
    assert verdict.final
    assert verdict.root_ranks == (3,)
    assert verdict.headline.startswith("rank 3 failed first: AssertionError in capture")
    assert verdict.evidence[0].text == "AssertionError"
    line = (
        node.home.launch(number).joinpath("rank-3.log").read_bytes()[verdict.evidence[-1].offset :]
    )
    assert line.endswith(b"ERROR AssertionError\n")
    assert crashed.ranks[3].state is ProcessState.FAILED
    assert node.get("/v1/launches/1", LaunchRecord).outcome == verdict.headline


def test_killed_rank_is_named(node: Supervised, free_port: int) -> None:
    view = node.up(port=free_port)
    os.kill(rank(view, 1), signal.SIGKILL)

    verdict = node.wait_launch(view.id, LaunchState.CRASHED).verdict

    assert verdict is not None
    assert verdict.root_ranks == (1,)
    assert verdict.headline.startswith("rank 1 failed first: killed by SIGKILL in serving")
    assert verdict.secondary == {"0": "killed_by_gang_stop", "frontend": "killed_by_gang_stop"}
    assert node.processes(view.uuid) == []


def test_relaunch_changes_a_flag_and_keeps_the_port(node: Supervised, free_port: int) -> None:
    first = node.up(port=free_port)
    number = node.post("/v1/relaunch", set={"ep": "on", "spec": "ngram:2"})["launch"]

    second = node.wait_launch(number, LaunchState.SERVING)

    assert second.chips == ("tp2", "ep2", "ngram:2", "graphs≤16")
    assert second.request.set["ep-size"] == "2"
    assert second.usual_ready_s == pytest.approx(first.ready_s, abs=0.01)
    assert node.get("/v1/launches/1", LaunchRecord).state is LaunchState.STOPPED
    assert node.processes(first.uuid) == []
    assert Operator(action="relaunch", t=pytest.approx(0, abs=60)) in node.events(first.id)


@pytest.mark.parametrize(
    ("flags", "status", "words"),
    [
        ({"tp-size": "3"}, 422, "does not divide the model's 8 attention heads"),
        ({"ep": "3"}, 422, "does not divide tp-size"),
        ({"model-path": "/nowhere"}, 422, "/nowhere"),
        ({"prot": "1"}, 400, "did you mean port"),
        ({"tp-size": "many"}, 400, "not a whole number"),
        ({"spec": "ngrm"}, 400, "did you mean ngram"),
    ],
)
def test_refused_relaunch_leaves_the_gang_alone(
    node: Supervised, free_port: int, flags: dict[str, str], status: int, words: str
) -> None:
    view = node.up(port=free_port)

    code, reply = node.refused("/v1/relaunch", set=flags)

    assert code == status
    assert words in reply.error.message + reply.error.hint
    assert "\n" not in reply.error.message
    launch = node.snapshot().launch
    assert launch is not None
    assert (launch.id, launch.state) == (view.id, LaunchState.SERVING)
    assert httpx.get(f"{view.url}/ready").status_code == 200


def test_up_is_refused_while_a_gang_runs(node: Supervised, free_port: int) -> None:
    view = node.up(port=free_port)

    code, reply = node.refused("/v1/up")

    assert (code, reply.error.exit) == (409, 2)
    assert f"launch {view.id} is running" in reply.error.message


def test_port_of_somebody_else_is_refused(node: Supervised, free_port: int) -> None:
    import socket

    with socket.create_server(("127.0.0.1", free_port)):
        code, reply = node.refused("/v1/up", set={"port": str(free_port)})

    assert code == 422
    assert (
        f"port {free_port} of 127.0.0.1 is taken by process {os.getpid()} (" in reply.error.message
    )
    assert reply.error.hint.startswith("--set port=")
    assert node.snapshot().launch is None


def test_down_now_kills(node: Supervised, free_port: int) -> None:
    view = node.up(port=free_port)
    node.post("/v1/down", now=True)

    assert node.wait_launch(view.id, LaunchState.STOPPED).verdict is not None
    assert node.processes(view.uuid) == []


def test_death_of_the_keeper_ends_the_gang(node: Supervised, free_port: int) -> None:
    view = node.up(port=free_port)
    keeper = next(
        pid for pid in node.processes(view.uuid) if pid not in {each.pid for each in view.processes}
    )
    os.kill(keeper, signal.SIGKILL)

    lost = node.wait_launch(view.id, LaunchState.LOST)

    assert node.processes(view.uuid) == []
    assert lost.verdict is not None
    assert lost.verdict.headline.startswith("the keeper ended without a word")
    assert any(isinstance(each, Gang) and each.state == "helper_died" for each in node.events(1))


def test_down_takes_back_a_relaunch_that_waits(node: Supervised, free_port: int) -> None:
    view = node.up(port=free_port)
    # Stopped, this rank leaves no time in which the next launch could begin.
    os.kill(view.ranks[0].pid, signal.SIGSTOP)
    number = node.post("/v1/relaunch", set={"ep": "on"})["launch"]
    status, reply = node.refused("/v1/relaunch")
    assert (status, reply.error.kind) == (409, "busy")
    assert f"launch {number}" in reply.error.message

    assert node.post("/v1/down")["launch"] == view.id
    os.kill(view.ranks[0].pid, signal.SIGCONT)

    launch = node.wait_launch(view.id, LaunchState.STOPPED)
    # A second request to stop is no impatience: nothing was killed.
    assert {each.exit.code for each in launch.processes if each.exit} == {0}
    assert node.post("/v1/down")["launch"] is None
    assert [each.id for each in node.get("/v1/launches", list[LaunchRecord])] == [view.id]


def test_forced_relaunch_ends_as_the_engine_decides(node: Supervised, free_port: int) -> None:
    view = node.up(port=free_port)
    assert node.refused("/v1/relaunch", set={"model-path": "/nowhere"})[0] == 422

    number = node.post("/v1/relaunch", set={"model-path": "/nowhere"}, force=True)["launch"]

    # This engine does not read the model, so that it serves what the plan would not have.
    assert node.wait_launch(number, LaunchState.SERVING).flags["model-path"] == "/nowhere"
    assert node.get(f"/v1/launches/{view.id}", LaunchRecord).state is LaunchState.STOPPED


def test_secret_that_was_not_kept_is_asked_for_again(node: Supervised, free_port: int) -> None:
    node.up(port=free_port, **{"api-key": "hush-hush-hush"})
    node.kill(signal.SIGKILL)
    node.start()

    status, reply = node.refused("/v1/relaunch")
    assert status == 400
    assert "--set api-key=" in reply.error.hint
    number = node.post("/v1/relaunch", unset=["api-key"])["launch"]

    assert "api-key" not in node.wait_launch(number, LaunchState.SERVING).flags


def test_unset_and_reset(node: Supervised, free_port: int) -> None:
    node.up(port=free_port, ep="on")
    second = node.post("/v1/relaunch", unset=["ep"])["launch"]
    assert "ep-size" not in node.wait_launch(second, LaunchState.SERVING).flags

    body = {"reset": True, "set": {"port": str(free_port), "tp-size": "1"}}
    third = node.post("/v1/relaunch", **body)["launch"]

    view = node.wait_launch(third, LaunchState.SERVING)
    assert view.request.set == {"port": str(free_port), "tp-size": "1"}
