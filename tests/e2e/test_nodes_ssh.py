"""One engine over two nodes, the second behind the system's ssh and an sshd of this test's."""

from __future__ import annotations

import json
import os
import re
import signal
from collections.abc import Iterator
from pathlib import Path

import msgspec
import pytest

from panel.config.profiles import load_profile
from panel.domain.events import Alarm
from panel.domain.snapshot import LaunchView
from panel.domain.states import LaunchState
from panel.supervisor import procfs
from tests.e2e.nodes import Site, free_ports, two_nodes
from tests.supervisor.support import wait_for
from tests.support.sshd import PROGRAMS, Sshd

pytestmark = [
    pytest.mark.e2e,
    pytest.mark.skipif(not PROGRAMS, reason="needs ssh, ssh-keygen and sshd (openssh-server)"),
]


@pytest.fixture
def sshd(tmp_path: Path) -> Iterator[Sshd]:
    """A running one."""
    daemon = Sshd(tmp_path / "ssh", free_ports(1)[0])
    daemon.start()
    yield daemon
    daemon.stop()


@pytest.fixture
def site(tmp_path: Path, sshd: Sshd, monkeypatch: pytest.MonkeyPatch) -> Iterator[Site]:
    """Two nodes, the second where ssh leads."""
    monkeypatch.setenv("LOST_S", "6")
    beta = tmp_path / "beta-home"
    with two_nodes(tmp_path, beta, f"-F {sshd.config} beta", home=str(beta)) as found:
        yield found


def alarms(site: Site, number: int) -> list[str]:
    return [each.text for each in site.node.events(number) if isinstance(each, Alarm)]


def ways(sshd: Sshd) -> list[str]:
    """Return the ssh programs that live."""
    lines = map(procfs.command_line, procfs.pids())
    return [line for line in lines if line.startswith("ssh ") and str(sshd.config) in line]


def alive(launch: LaunchView, nodes: tuple[str, ...]) -> list[int]:
    return [
        each.pid
        for each in launch.ranks
        if each.node in nodes and Path(f"/proc/{each.pid}").exists()
    ]


def test_a_gang_over_ssh_outlives_a_cut_connection_and_stops_as_one(site: Site, sshd: Sshd) -> None:
    launch = site.serving()
    assert [each.node for each in launch.ranks] == ["alpha"] * 4 + ["beta"] * 4
    assert len(alive(launch, ("alpha", "beta"))) == 8
    assert site.homes()[1].launch(1).is_dir()

    sshd.drop()
    told = wait_for(lambda: alarms(site, launch.id)[1:2], "the connection again")[0]
    lost = alarms(site, launch.id)[0]
    assert lost.startswith("node beta does not answer: "), lost
    assert re.fullmatch(r"node beta answers again, after \d+\.\d s", told), told
    note = wait_for(lambda: (seen := site.node.snapshot().launch) and seen.note == told, "a note")
    assert note
    assert site.node.snapshot().launch.state is LaunchState.SERVING

    down = site.cli("down", "--timeout", "60")
    assert (down.returncode, down.stdout.strip()) == (0, f"#{launch.id} stopped"), down.stderr
    ended = site.ended(launch.id)
    assert ended.verdict is not None
    assert ended.verdict.status == "stopped"
    assert not alive(launch, ("alpha", "beta"))
    assert not ways(sshd)


def test_a_connection_that_stays_away_ends_the_launch(site: Site, sshd: Sshd) -> None:
    launch = site.serving()

    sshd.stop()
    lost = site.node.wait_launch(launch.id, LaunchState.LOST)

    assert lost.verdict is not None
    assert "node beta went away" in lost.verdict.headline
    assert "Connection refused" in lost.verdict.headline
    assert not alive(launch, ("alpha",))
    assert len(alive(launch, ("beta",))) == 4
    wait_for(lambda: not ways(sshd), "the end of ssh")


def test_who_is_not_let_in_is_told_why_before_anything_starts(site: Site, sshd: Sshd) -> None:
    nodes = load_profile(site.node.home, site.profile).nodes
    ssh = f"-F {sshd.stranger} beta"
    site.change(nodes=(nodes[0], msgspec.structs.replace(nodes[1], ssh=ssh)))

    up = site.cli("up", "--profile", site.profile, "--wait", "--timeout", "60")

    assert up.returncode == 1
    assert f"node beta ({ssh}) cannot be reached" in up.stdout + up.stderr
    assert "Permission denied (publickey" in up.stdout + up.stderr
    launch = site.node.snapshot().launch
    assert launch is not None
    assert (launch.state, launch.processes) == (LaunchState.REFUSED, ())


def test_a_killed_keeper_leaves_no_way_behind(site: Site, sshd: Sshd) -> None:
    launch = site.serving()
    assert ways(sshd)
    keeper = json.loads((site.node.home.launch(launch.id) / "keeper.json").read_bytes())

    os.kill(keeper["pid"], signal.SIGKILL)
    site.ended(launch.id)

    assert not alive(launch, ("alpha", "beta"))
    wait_for(lambda: not ways(sshd), "the end of ssh")
