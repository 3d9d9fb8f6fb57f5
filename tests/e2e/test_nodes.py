"""One engine over two nodes, the second by an ssh that stands in for the real one."""

from __future__ import annotations

import contextlib
import json
import os
import shlex
import signal
import socket
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

import msgspec
import pytest

from panel.config.home import Home, find_home
from panel.config.profiles import load_profile, save_profile
from panel.domain.flags import ProfileNode
from panel.domain.snapshot import LaunchView
from panel.domain.states import LaunchState
from panel.supervisor import procfs
from panel.supervisor.start import answers
from tests.e2e.test_replay import FAST
from tests.supervisor.support import Supervised, supervised, wait_for
from tests.support.engines import REPLAY, replay_profile
from tests.support.wide import write_node

pytestmark = pytest.mark.e2e

FAKE_SSH = Path(__file__).parents[1] / "support/fake_ssh.py"
NAMES = ("alpha", "beta")


class Site(NamedTuple):
    """The supervisor on this node, and the folder of what ssh reaches."""

    node: Supervised
    ssh: Path
    profile: str

    def cli(self, *words: str) -> subprocess.CompletedProcess[str]:
        """Run a command of the panel on this node."""
        return subprocess.run(
            [sys.executable, "-m", "panel.cli", *words],
            env=self.node.env,
            capture_output=True,
            text=True,
            timeout=120,
        )

    def change(self, **changes: Any) -> None:
        """Save the profile with other nodes."""
        profile = load_profile(self.node.home, self.profile)
        path = self.node.home.profiles / f"{self.profile}.toml"
        path.unlink()
        save_profile(self.node.home, msgspec.structs.replace(profile, **changes))

    def serving(self) -> LaunchView:
        """Launch; wait until it serves and all ranks are known."""
        up = self.cli("up", "--profile", self.profile, "--wait", "--timeout", "100", "--json")
        assert up.returncode == 0, up.stderr + up.stdout

        def known() -> LaunchView | None:
            launch = self.node.snapshot().launch
            return launch if launch and len(launch.ranks) == launch.world_size else None

        return wait_for(known, "all ranks")

    def ended(self, number: int) -> LaunchView:
        """Wait until nothing is left of a launch on any node."""
        launch = self.node.wait_launch(
            number, LaunchState.STOPPED, LaunchState.CRASHED, LaunchState.LOST, LaunchState.REFUSED
        )
        for home in self.homes():
            wait_for(lambda home=home: not answers(home.socket), f"the end of {home.state}")
        return launch

    def homes(self) -> list[Home]:
        """Return the homes of the nodes' own supervisors."""
        folders = (self.node.home.state / "nodes/alpha", self.ssh / "beta.example")
        return [find_home({"MOEPANEL_HOME": str(folder)}) for folder in folders]


def free_ports(count: int) -> list[int]:
    sockets = [socket.create_server(("127.0.0.1", 0)) for _ in range(count)]
    ports = [each.getsockname()[1] for each in sockets]
    for each in sockets:
        each.close()
    return ports


def end(home: Home) -> None:
    """Kill what a node's supervisor left, and itself."""
    if answers(home.socket):
        os.kill(int(home.lock.read_text()), signal.SIGKILL)
    for spec in home.launches.glob("*/launch.json"):
        for pid in procfs.marked({procfs.LAUNCH_MARKER: json.loads(spec.read_bytes())["uuid"]}):
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)


@pytest.fixture
def site(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Site]:
    home, ssh, programs = tmp_path / "home", tmp_path / "ssh", tmp_path / "bin"
    for folder in (home, ssh, ssh / "beta.example", programs):
        folder.mkdir()
    (home / "config.toml").write_text("warm = false\n")
    program = programs / "ssh"
    program.write_text(f'#!/bin/sh\nexec {sys.executable} {FAKE_SSH} "$@"\n')
    program.chmod(0o755)
    monkeypatch.setenv("PATH", f"{programs}:{os.environ['PATH']}")
    monkeypatch.setenv("FAKE_SSH", str(ssh))
    for name, ranks in zip(NAMES, (range(4), range(4, 8)), strict=True):
        write_node(tmp_path / name, ranks, 8)
    ports = free_ports(2)
    with supervised(home, [sys.executable, "-m", "tests.support.replay_supervisor"]) as node:
        name = replay_profile(node.home, tmp_path / "alpha", FAST, ports[0])
        found = Site(node, ssh, name)
        play = shlex.join([sys.executable, str(REPLAY)])
        installation = msgspec.structs.replace(
            load_profile(node.home, name).installation,
            command=f"sh -c 'exec {play} {tmp_path}/$NODE {FAST} \"$@\"' play",
        )
        nodes = tuple(
            ProfileNode(
                name=each,
                address="127.0.0.1",
                ssh="" if each == "alpha" else f"{each}.example",
                python=sys.executable,
                flags={"port": str(port)},
                env={"NODE": each},
            )
            for each, port in zip(NAMES, ports, strict=True)
        )
        found.change(nodes=nodes, installation=installation)
        try:
            yield found
        finally:
            node.close()
            for home in found.homes():
                end(home)


def test_one_launch_over_two_nodes_is_one_screen_and_one_stop(site: Site) -> None:
    launch = site.serving()

    assert launch.state is LaunchState.SERVING
    assert [each.rank for each in launch.ranks] == list(range(8))
    assert [each.node for each in launch.ranks] == ["alpha"] * 4 + ["beta"] * 4
    assert all(Path(f"/proc/{each.pid}").exists() for each in launch.ranks)
    wait_for(
        lambda: (
            (seen := site.node.snapshot().launch)
            and {each.phase for each in seen.ranks} == {"serving"}
        ),
        "their phases",
    )
    status = site.cli("status")
    assert "beta" in status.stdout
    site.node.kill(signal.SIGKILL)
    site.node.start()
    adopted = site.node.wait_launch(launch.id, LaunchState.SERVING)
    assert [each.pid for each in adopted.ranks] == [each.pid for each in launch.ranks]
    logs = site.cli("logs", "--grep", "Load weight end")
    assert sum(f"TP{rank} " in logs.stdout for rank in range(8)) == 8

    down = site.cli("down", "--timeout", "60")
    assert (down.returncode, down.stdout.strip()) == (0, f"#{launch.id} stopped"), down.stderr
    ended = site.ended(launch.id)
    assert ended.verdict is not None
    assert ended.verdict.status == "stopped"
    assert not any(Path(f"/proc/{each.pid}").exists() for each in launch.ranks)


def test_a_rank_that_dies_on_the_second_node_stops_both_and_is_named(site: Site) -> None:
    launch = site.serving()

    os.kill(launch.ranks[5].pid, signal.SIGKILL)
    ended = site.ended(launch.id)

    assert ended.state is LaunchState.CRASHED
    assert ended.verdict is not None
    assert ended.verdict.root_ranks == (5,)
    assert "beta" in ended.verdict.headline
    assert not any(Path(f"/proc/{each.pid}").exists() for each in launch.ranks)
    triage = site.cli("triage", "--json")
    told = json.loads(triage.stdout)
    assert (told["root_ranks"], told["headline"].partition(":")[0]) == ([5], "beta")


def test_a_killed_keeper_leaves_nothing_on_any_node(site: Site) -> None:
    launch = site.serving()
    keeper = json.loads((site.node.home.launch(launch.id) / "keeper.json").read_bytes())

    os.kill(keeper["pid"], signal.SIGKILL)
    site.ended(launch.id)

    assert not any(Path(f"/proc/{each.pid}").exists() for each in launch.ranks)


def test_a_node_that_cannot_be_reached_is_refused_before_anything_starts(site: Site) -> None:
    (site.ssh / "beta.example/gone").touch()
    up = site.cli("up", "--profile", site.profile, "--wait", "--timeout", "60")

    assert up.returncode == 1
    assert "beta (beta.example) cannot be reached" in up.stdout + up.stderr
    assert "No route to host" in up.stdout + up.stderr
    launch = site.node.snapshot().launch
    assert launch is not None
    assert (launch.state, launch.processes) == (LaunchState.REFUSED, ())


def test_a_node_that_goes_away_while_serving_ends_the_launch(site: Site) -> None:
    launch = site.serving()
    (site.ssh / "beta.example/gone").touch()

    lost = site.node.wait_launch(launch.id, LaunchState.LOST)

    assert lost.verdict is not None
    assert "beta" in lost.verdict.headline
    assert not any(Path(f"/proc/{each.pid}").exists() for each in launch.ranks[:4])
    for each in launch.ranks[4:]:
        os.kill(each.pid, signal.SIGKILL)
