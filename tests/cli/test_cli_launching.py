"""`up`, `relaunch`, `down` and `shutdown` against a scripted supervisor."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from collections.abc import Callable

import msgspec
import pytest
from click.testing import Result

from panel.commands._outcome import Outcome
from panel.domain.states import LaunchState
from panel.domain.wire import Accepted
from tests.cli.conftest import FakeSupervisor
from tests.cli.samples import URL, crashed, launch, rank, snapshot

Run = Callable[..., Result]
LAUNCHING = LaunchState.LAUNCHING


@pytest.fixture
def accepting(supervisor: FakeSupervisor) -> FakeSupervisor:
    for action in ("up", "relaunch", "down", "shutdown"):
        supervisor.answer(f"POST /v1/{action}", Accepted(launch=17), 202)
    return supervisor


def test_up_sends_profile_and_flags(accepting: FakeSupervisor, moepanel: Run) -> None:
    done = moepanel(
        "up", "--profile", "tiny", "--set", "fault=rank=3,phase=capture", "--set", "--ep-size = 8"
    )
    assert done.exit_code == 0
    assert "#17" in done.stdout
    assert accepting.requests == [
        (
            "POST /v1/up",
            {"profile": "tiny", "set": {"fault": "rank=3,phase=capture", "ep-size": "8"}},
        )
    ]


def test_up_json_without_wait(accepting: FakeSupervisor, moepanel: Run) -> None:
    assert json.loads(moepanel("up", "--json").stdout) == {"launch": 17}


@pytest.mark.parametrize("word", ["disable-cuda-graph", "=8", "--=8"])
def test_set_without_value(moepanel: Run, word: str) -> None:
    done = moepanel("up", "--set", word)
    assert done.exit_code == 2
    assert "FLAG=VALUE" in done.stderr


def test_up_waits_until_it_serves(accepting: FakeSupervisor, moepanel: Run) -> None:
    """The launch before it, still shown for a moment, does not count."""
    accepting.show(
        snapshot(),
        snapshot(launch(LaunchState.STOPPED, 16)),
        snapshot(launch(LAUNCHING, t=1.0)),
        snapshot(launch(LAUNCHING, t=1.5)),
        snapshot(launch()),
    )
    done = moepanel("up", "--wait", "--json")
    assert done.exit_code == 0
    told = msgspec.json.decode(done.stdout, type=Outcome)
    assert (told.launch, told.ready, told.ready_s, told.url) == (17, True, 4.1, URL)
    assert [each.rank for each in told.ranks] == list(range(8))
    assert told.verdict is None
    assert done.stderr.splitlines() == [
        "#16 stopped", "#17 capture 1.0s", "#17 serving 12m31s",
    ]  # fmt: skip


def test_up_in_words(accepting: FakeSupervisor, moepanel: Run) -> None:
    accepting.show(snapshot(launch()))
    assert moepanel("up", "--wait").stdout == f"#17 serving after 4.1s at {URL}, 8 ranks\n"


def test_crash_waits_for_the_final_verdict(accepting: FakeSupervisor, moepanel: Run) -> None:
    accepting.show(
        snapshot(launch(LAUNCHING)),
        snapshot(launch(LaunchState.FAILING)),
        snapshot(crashed(final=False)),
        snapshot(crashed()),
    )
    done = moepanel("up", "--wait")
    assert done.exit_code == 1
    first, second, third = done.stdout.splitlines()
    assert first == "rank 3 failed first: killed by SIGKILL in capture"
    assert second == "rank 3, pid 4003: killed by SIGKILL, 3.2s after launch"
    assert third == "  RuntimeError: no such bucket"
    assert done.stderr.splitlines()[-2:] == [
        "moepanel: launch #17 crashed", "  moepanel logs --launch 17",
    ]  # fmt: skip


def test_crash_in_json(accepting: FakeSupervisor, moepanel: Run) -> None:
    accepting.show(snapshot(crashed()))
    done = moepanel("relaunch", "--wait", "--json")
    assert done.exit_code == 1
    told = msgspec.json.decode(done.stdout, type=Outcome)
    assert (told.ready, told.state) == (False, LaunchState.CRASHED)
    assert told.verdict is not None
    assert told.verdict.root_ranks == (3,)
    assert "rank 3 failed first" in done.stderr


def test_stopped_by_somebody_while_waiting(accepting: FakeSupervisor, moepanel: Run) -> None:
    accepting.show(snapshot(launch(LaunchState.STOPPED)))
    done = moepanel("up", "--wait")
    assert done.exit_code == 1
    assert "stopped before it served" in done.stderr


def test_replaced_while_waiting(accepting: FakeSupervisor, moepanel: Run) -> None:
    accepting.show(snapshot(launch(LAUNCHING, 18)))
    done = moepanel("up", "--wait")
    assert done.exit_code == 1
    assert "replaced by #18" in done.stderr


def test_timeout(accepting: FakeSupervisor, moepanel: Run) -> None:
    accepting.show(snapshot(launch(LAUNCHING)))
    done = moepanel("up", "--wait", "--timeout", "0.2")
    assert done.exit_code == 4
    assert "launch #17 stands at capture after 0.2 s" in done.stderr
    assert "goes on" in done.stderr


def test_supervisor_lost_while_waiting(accepting: FakeSupervisor, moepanel: Run) -> None:
    accepting.show(snapshot(launch(LAUNCHING)))
    accepting.ends_stream = True
    done = moepanel("up", "--wait")
    assert done.exit_code == 3
    assert "went away" in done.stderr


@pytest.mark.parametrize(
    ("status", "kind", "code"), [(409, "busy", 2), (422, "refused", 1), (400, "usage", 2)]
)
def test_refusals(
    supervisor: FakeSupervisor, moepanel: Run, status: int, kind: str, code: int
) -> None:
    supervisor.refuse("POST /v1/up", status, kind=kind, message="no: it", hint="try", exit=code)
    done = moepanel("up", "--wait")
    assert done.exit_code == code
    assert done.stderr == "moepanel: no: it\n  try\n"
    assert done.stdout == ""


def test_relaunch_sends_what_changes(accepting: FakeSupervisor, moepanel: Run) -> None:
    accepting.show(snapshot())
    words = ("--set", "graphs=8", "--unset", "--seed", "--unset", "port", "--reset")
    done = moepanel("relaunch", *words)
    assert done.exit_code == 0
    told = "nothing was launched before: from the profile tiny"
    assert done.stderr.splitlines()[0] == told
    _, (_, body) = accepting.requests
    assert body["set"] == {"graphs": "8"}
    assert body["unset"] == ["seed", "port"]
    assert body["reset"] is True


def test_down_waits_for_the_end(accepting: FakeSupervisor, moepanel: Run) -> None:
    accepting.show(
        snapshot(launch()),
        snapshot(launch(LaunchState.STOPPING)),
        snapshot(launch(LaunchState.STOPPED)),
    )
    done = moepanel("down", "--now")
    assert (done.exit_code, done.stdout) == (0, "#17 stopped\n")
    assert accepting.requests == [("POST /v1/down", {"now": True})]


def test_down_in_json(accepting: FakeSupervisor, moepanel: Run) -> None:
    accepting.show(snapshot(launch(LaunchState.STOPPED)))
    stopped = {"launch": 17, "state": "stopped", "held": []}
    assert json.loads(moepanel("down", "--json").stdout) == stopped
    assert json.loads(moepanel("down", "--no-wait", "--json").stdout) == stopped | {"state": None}


def test_down_says_what_still_holds_a_gpu(accepting: FakeSupervisor, moepanel: Run) -> None:
    held = "GPU 1 is still held by rank 1 (pid 7, 71.0 GiB)"
    accepting.show(snapshot(launch(LaunchState.STOPPED, held=(held,))))
    done = moepanel("down")
    assert (done.exit_code, done.stdout) == (1, "#17 stopped\n")
    assert held in done.stderr
    assert "by hand" in done.stderr


def test_down_with_nothing_running(supervisor: FakeSupervisor, moepanel: Run) -> None:
    supervisor.answer("POST /v1/down", Accepted(launch=None), 202)
    done = moepanel("down")
    assert (done.exit_code, done.stdout) == (0, "nothing runs\n")


def test_shutdown_waits_for_the_supervisor(accepting: FakeSupervisor, moepanel: Run) -> None:
    with subprocess.Popen([sys.executable, "-c", "input()"], stdin=subprocess.PIPE) as process:
        accepting.show(snapshot(pid=process.pid))
        late = moepanel("shutdown", "--timeout", "0.1")
        assert late.exit_code == 4
        process.communicate(b"\n")
        done = moepanel("shutdown")
    assert (done.exit_code, done.stdout) == (0, "supervisor ended; nothing ran\n")


def test_shutdown_names_what_it_stops(accepting: FakeSupervisor, moepanel: Run) -> None:
    with subprocess.Popen([sys.executable, "-c", "input()"], stdin=subprocess.PIPE) as process:
        accepting.show(snapshot(launch(), pid=process.pid))
        late = moepanel("shutdown", "--timeout", "0.1")
        process.communicate(b"\n")
    assert (late.exit_code, late.stderr.splitlines()[0]) == (4, "stopping #17 tiny")
    with subprocess.Popen([sys.executable, "-c", ""]) as process:
        accepting.show(snapshot(launch(), pid=process.pid))
        done = moepanel("shutdown")
    assert (done.exit_code, done.stdout) == (0, "supervisor ended; #17 tiny stopped\n")


def test_interrupt_leaves_the_launch_alone(
    accepting: FakeSupervisor, moepanel: Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    accepting.show(snapshot(launch(LAUNCHING, processes=(rank(0, "weights"),), phase="weights")))

    def interrupt(*_: object) -> None:
        os.kill(os.getpid(), signal.SIGINT)

    monkeypatch.setattr("panel.commands._progress.Progress.show", interrupt)
    # In the background of a shell these tests would ignore it.
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    try:
        done = moepanel("up", "--wait")
    finally:
        signal.signal(signal.SIGINT, before)
    assert done.exit_code == 130
    assert "launch #17 goes on" in done.stderr
    assert accepting.requests == [("POST /v1/up", {"profile": None, "set": {}})]
