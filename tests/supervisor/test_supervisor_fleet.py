"""The keeper of several nodes in parts: one clock, one numbering, the way by ssh."""

from __future__ import annotations

import os
import sys
from pathlib import Path

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from panel import __version__
from panel.domain.errors import PanelError
from panel.domain.events import (
    Alarm,
    Event,
    Exit,
    Gang,
    Health,
    Operator,
    PhaseEvent,
    Signal,
    Spawn,
    Title,
)
from panel.domain.nodes import node_of, own_pid, shared_pid, with_nodes
from panel.domain.snapshot import ProcessExit
from panel.domain.states import ProcessState
from panel.domain.verdict import Evidence, Verdict
from panel.supervisor.evidence import Folder
from panel.supervisor.fleet.looks import Look, look_of, together
from panel.supervisor.fleet.mirror import Clock, Mirror, Place, served_elsewhere
from panel.supervisor.fleet.order import NodeOrder
from panel.supervisor.fleet.part import Part
from panel.supervisor.fleet.silence import Silences
from panel.supervisor.fleet.ssh import reach
from panel.supervisor.watch.processes import Usage
from tests.screens import stage
from tests.widgets.test_gpu_words import gpu

FAKE_SSH = Path(__file__).parents[1] / "support/fake_ssh.py"
NODES = ("alpha", "beta")
SECOND = Place(index=1, nodes=NODES, world_size=8)


def lines(*events: Event) -> str:
    return "".join(msgspec.json.encode(event).decode() + "\n" for event in events)


def test_events_of_a_node_bear_its_name_and_its_own_pids() -> None:
    told = lines(
        Operator(t=0.0, action="up"),
        Spawn(t=0.5, source="engine", pid=7, ppid=3),
        Title(t=1.0, pid=7, title="sglang::scheduler_TP5", rank=5),
        PhaseEvent(t=2.0, rank=5, phase="weights"),
        PhaseEvent(t=2.0, rank=0, phase="weights"),
        Health(t=3.0, endpoint="/health", code=200, ms=1.0),
        Gang(t=3.5, state="failing", reason="rank 5 died"),
        Alarm(t=4.0, text="the disk is full"),
        Exit(t=5.0, pid=7, code=None),
    )
    pid = shared_pid(1, 7)
    assert list(Mirror(SECOND).read(told + "torn", 10.0)) == [
        Spawn(t=10.5, source="beta", pid=pid, ppid=shared_pid(1, 3)),
        Title(t=11.0, pid=pid, title="sglang::scheduler_TP5", rank=5),
        PhaseEvent(t=12.0, rank=5, phase="weights"),
        Alarm(t=14.0, text="beta: the disk is full"),
        Exit(t=15.0, pid=pid, code=None),
    ]
    assert own_pid(pid) == 7


def test_what_ends_after_the_gang_stopped_a_node_was_asked_to() -> None:
    told = lines(
        Spawn(t=0.0, source="engine", pid=7),
        Spawn(t=0.0, source="engine", pid=8),
        Exit(t=1.0, pid=8, code=1),
        Operator(t=2.0, action="down"),
        Exit(t=3.0, pid=7, code=-9),
    )
    found = list(Mirror(SECOND).read(told, 0.0))
    signals = [each for each in found if isinstance(each, Signal)]
    assert [(each.t, each.pid) for each in signals] == [(2.0, shared_pid(1, 7))]
    assert isinstance(found[-1], Exit)


def test_the_api_s_health_speaks_for_the_ranks_of_all_nodes() -> None:
    first = Place(index=0, nodes=NODES, world_size=8)
    healthy = Health(t=4.0, endpoint="/health", code=200, ms=1.0)
    assert list(Mirror(first).read(lines(healthy), 0.0)) == [healthy]
    serving = list(served_elsewhere(healthy, first))
    assert serving == [PhaseEvent(t=4.0, rank=rank, phase="serving") for rank in range(4, 8)]
    assert not list(served_elsewhere(Health(t=4.0, endpoint="/health", code=503, ms=1.0), first))


@given(
    st.floats(-1e6, 1e6),
    st.lists(
        st.tuples(st.floats(0, 1e4), st.floats(0, 2.0), st.floats(0, 2.0)), min_size=1, max_size=8
    ),
)
def test_the_clock_is_right_within_what_it_says(
    begun: float, answers: list[tuple[float, float, float]]
) -> None:
    clock = Clock()
    for asked, there, back in answers:
        clock.measure(asked, asked + there + back, asked + there - begun)
    assert abs(clock.begun - begun) <= clock.within + 1e-6
    assert clock.within == pytest.approx(min(there + back for _, there, back in answers) / 2)


def test_what_nodes_see_bears_pids_that_no_two_share() -> None:
    processes = tuple(
        stage.process(rank, ProcessState.SERVING, cpu=90.0, rss=1 << 30, stopped=rank == 4)
        for rank in (4, 5)
    )
    gone = stage.process(6, ProcessState.FAILED, exit=ProcessExit(t=1.0, code=1, words="exit 1"))
    launch = stage.launch(id=3, processes=(*processes, gone))
    gpus = (gpu(0, rank=4), gpu(1, rank=None))
    seen = msgspec.structs.replace(stage.snapshot(launch), gpus=gpus)

    look = look_of(seen, 3, 1)
    pids = [shared_pid(1, each.pid) for each in processes]
    assert look == Look(
        usage={pid: Usage(90.0, 1 << 30, 2) for pid in pids}, stopped=(pids[0],), gpus=gpus[:1]
    )
    assert look_of(seen, 4, 1) == Look()
    both = together([look_of(seen, 3, 0), look])
    assert (len(both.usage), len(both.stopped), both.gpus) == (4, 2, gpus[:1] * 2)
    assert msgspec.json.decode(msgspec.json.encode(both), type=Look) == both


def test_a_silence_is_told_when_it_begins_and_when_it_ends() -> None:
    silences = Silences()
    looks = [(None, 1.0, ""), (2.0, 2.0, "ssh: reset"), (2.0, 3.0, ""), (None, 4.5, "")]
    told = [silences.look("beta", *each) for each in [*looks, (None, 5.0, ""), (6.0, 6.0, "")]]
    assert told == [
        "",
        "node beta does not answer: ssh: reset",
        "",
        "node beta answers again, after 2.5 s",
        "",
        "node beta does not answer: the connection is gone",
    ]


@given(st.integers(0, 7), st.sampled_from([1, 2, 4, 8]))
def test_ranks_lie_on_nodes_in_equal_runs(rank: int, count: int) -> None:
    names = tuple(f"n{index}" for index in range(count))
    assert node_of(rank, 8, names) == f"n{rank // (8 // count)}"
    assert node_of(rank, 8, ()) == ""


def test_a_verdict_says_on_which_node_its_ranks_are() -> None:
    death = Evidence(
        source="events", offset=0, line=1, text=f"rank 5 (pid {shared_pid(1, 77)}) exit"
    )
    said = Evidence(source="beta", offset=0, line=1, text="pid 20000077 is what the log says")
    blamed = Verdict(
        status="crashed",
        headline="rank 5 failed first: killed",
        root_ranks=(5,),
        evidence=(death, said),
    )
    placed = with_nodes(blamed, 8, NODES)
    assert [each.text for each in placed.evidence] == ["rank 5 (pid 77) exit", said.text]
    assert with_nodes(blamed, 8, NODES).headline == "beta: rank 5 failed first: killed"
    assert with_nodes(with_nodes(blamed, 8, NODES), 8, NODES) == with_nodes(blamed, 8, NODES)
    assert with_nodes(blamed, 8, ()) == blamed
    both = msgspec.structs.replace(blamed, root_ranks=(0, 7))
    assert with_nodes(both, 8, NODES).headline.startswith("alpha and beta: ")
    everybody = msgspec.structs.replace(blamed, root_ranks="all")
    assert with_nodes(everybody, 8, NODES).headline == everybody.headline


@pytest.fixture
def ssh(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    programs = tmp_path / "bin"
    programs.mkdir()
    (tmp_path / "beta.example").mkdir()
    program = programs / "ssh"
    program.write_text(f'#!/bin/sh\nexec {sys.executable} {FAKE_SSH} "$@"\n')
    program.chmod(0o755)
    monkeypatch.setenv("PATH", f"{programs}:{os.environ['PATH']}")
    monkeypatch.setenv("FAKE_SSH", str(tmp_path))
    return tmp_path


def order(python: str = sys.executable, ssh: str = "beta.example") -> NodeOrder:
    return NodeOrder(name="beta", ssh=ssh, python=python, home="")


async def test_a_destination_that_is_not_there(ssh: Path) -> None:
    with pytest.raises(PanelError) as told:
        await reach(order(ssh="nowhere"))
    assert "node beta (nowhere) cannot be reached: ssh: connect to host" in told.value.message
    assert "ssh nowhere must work without a password" in told.value.hint


async def test_options_of_ssh_stand_before_the_destination(ssh: Path) -> None:
    script = ssh / "python"
    script.write_text(
        '#!/bin/sh\necho \'{"socket": "/x.sock", "version": "1", "started": false}\'\n'
    )
    script.chmod(0o755)
    reached = await reach(order(str(script), "'-F/srv/a file' beta.example"))
    assert reached.socket == "/x.sock"


async def test_a_destination_that_is_quoted_badly(ssh: Path) -> None:
    with pytest.raises(PanelError, match="No closing quotation"):
        await reach(order(ssh="-F 'one beta.example"))


async def test_a_node_without_the_panel(ssh: Path) -> None:
    with pytest.raises(PanelError) as told:
        await reach(order(python="no-such-python"))
    assert "node beta (beta.example) has no moepanel" in told.value.message
    assert "set python under that node (now no-such-python)" in told.value.hint


async def test_a_node_with_another_version(ssh: Path) -> None:
    script = ssh / "other"
    script.write_text(
        '#!/bin/sh\necho \'{"socket": "/x.sock", "version": "0.0.1", "started": false}\'\n'
    )
    script.chmod(0o755)
    part = Part(order(python=str(script)), SECOND, Folder(ssh), lambda: 0.0)
    with pytest.raises(PanelError) as told:
        await part.open(ssh / "local.sock")
    assert told.value.message == f"node beta has moepanel 0.0.1, here is {__version__}"
    await part.close()


async def test_a_node_whose_answer_is_none(ssh: Path) -> None:
    with pytest.raises(PanelError, match=r"node beta \(beta.example\): "):
        await reach(order(python="true"))
