"""One engine over two nodes of this machine: `alpha`, which is here, and `beta`, behind an ssh."""

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

NAMES = ("alpha", "beta")


class Site(NamedTuple):
    """The supervisor on this node, and the home of the other node's."""

    node: Supervised
    beta: Path
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
        folders = (self.node.home.state / "nodes/alpha", self.beta)
        return [find_home({"MOEPANEL_HOME": str(folder)}) for folder in folders]


def free_ports(count: int) -> list[int]:
    """Return ports that nobody uses."""
    sockets = [socket.create_server(("127.0.0.1", 0)) for _ in range(count)]
    ports = [int(each.getsockname()[1]) for each in sockets]
    for each in sockets:
        each.close()
    return ports


@contextlib.contextmanager
def two_nodes(folder: Path, beta: Path, ssh: str, home: str = "") -> Iterator[Site]:
    """Run a supervisor whose profile spans both; `ssh` and `home` are beta's in the profile, and
    `beta` is where that leads. Nothing is left of either afterwards."""
    here = folder / "home"
    for each in (here, beta):
        each.mkdir(parents=True, exist_ok=True)
    (here / "config.toml").write_text("warm = false\n")
    for name, ranks in zip(NAMES, (range(4), range(4, 8)), strict=True):
        write_node(folder / name, ranks, 8)
    ports = free_ports(2)
    with supervised(here, [sys.executable, "-m", "tests.support.replay_supervisor"]) as node:
        name = replay_profile(node.home, folder / "alpha", FAST, ports[0])
        site = Site(node, beta, name)
        play = shlex.join([sys.executable, str(REPLAY)])
        installation = msgspec.structs.replace(
            load_profile(node.home, name).installation,
            command=f"sh -c 'exec {play} {folder}/$NODE {FAST} \"$@\"' play",
        )
        nodes = tuple(
            ProfileNode(
                name=each,
                address="127.0.0.1",
                ssh="" if each == "alpha" else ssh,
                home="" if each == "alpha" else home,
                python=sys.executable,
                flags={"port": str(port)},
                env={"NODE": each},
            )
            for each, port in zip(NAMES, ports, strict=True)
        )
        site.change(nodes=nodes, installation=installation)
        try:
            yield site
        finally:
            node.close()
            for each in site.homes():
                _end(each)


def _end(home: Home) -> None:
    """Kill what a node's supervisor left, and itself."""
    if answers(home.socket):
        os.kill(int(home.lock.read_text()), signal.SIGKILL)
    for spec in home.launches.glob("*/launch.json"):
        for pid in procfs.marked({procfs.LAUNCH_MARKER: json.loads(spec.read_bytes())["uuid"]}):
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
