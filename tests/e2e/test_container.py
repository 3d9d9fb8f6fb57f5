"""An engine in a container: its processes are not ours, and its stop is seen on the GPUs."""

from __future__ import annotations

import os
import shlex
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

import msgspec
import pytest

from panel.config.profiles import load_profile, save_profile
from panel.domain.events import Alarm, Gpu
from panel.domain.flags import Installation
from panel.domain.gpu import GpuProcess, GpuSample
from panel.domain.snapshot import LaunchView
from panel.domain.states import LaunchState
from panel.probes.gpu.sampler import Tick
from panel.supervisor import procfs
from tests.e2e.test_replay import FAST
from tests.supervisor.support import Supervised, supervised, wait_for
from tests.support.engines import CONSTRUCTED, replay_profile

pytestmark = pytest.mark.e2e

CONTAINER = Path(__file__).parents[1] / "support/container.py"
GIB = 1 << 30


class Site(NamedTuple):
    """A supervisor, a container runtime, and what the driver says of two GPUs."""

    node: Supervised
    folder: Path
    gpus: Path

    def show(self, *held: int) -> None:
        """Let the driver say that GPU 1 is held by these processes, 71 GiB each."""
        show(self.gpus, *held)

    def serving(self, port: int) -> LaunchView:
        """Launch in the container; wait until it serves and its ranks are known."""
        name = replay_profile(self.node.home, CONSTRUCTED / "vllm", FAST, port)
        profile = load_profile(self.node.home, name)
        start = shlex.split(profile.installation.command)

        def client(verb: str, *words: str) -> str:
            return shlex.join([sys.executable, str(CONTAINER), verb, str(self.folder), *words])

        installation = Installation(
            version=profile.installation.version,
            command=client("run", *start),
            stop=client("stop"),
            pids=client("top"),
        )
        save_profile(self.node.home, msgspec.structs.replace(profile, installation=installation))
        number = int(self.node.post("/v1/up", profile=name)["launch"])
        self.node.wait_launch(number, LaunchState.SERVING)

        def known() -> LaunchView | None:
            launch = self.node.snapshot().launch
            return launch if launch and len(launch.ranks) == launch.world_size else None

        return wait_for(known, "the ranks")


def show(file: Path, *held: int) -> None:
    samples = tuple(
        GpuSample(
            index=index,
            uuid=f"GPU-{index}",
            bus_id=f"0000:0{index}:00.0",
            name="RTX",
            memory_used=GIB * (1 + 71 * len(held) * index),
            memory_total=96 * GIB,
            processes=tuple(GpuProcess(pid=pid, memory=71 * GIB) for pid in held if index),
        )
        for index in range(2)
    )
    fresh = file.with_suffix(".new")
    fresh.write_bytes(msgspec.json.encode(Tick(samples)))
    fresh.rename(file)


@pytest.fixture
def site(tmp_path: Path) -> Iterator[Site]:
    home, folder, gpus = tmp_path / "home", tmp_path / "container", tmp_path / "gpus"
    home.mkdir()
    folder.mkdir()
    (home / "config.toml").write_text("warm = false\n")
    show(gpus)
    daemon = subprocess.Popen([sys.executable, str(CONTAINER), "serve", str(folder)])
    program = [sys.executable, "-m", "tests.support.replay_supervisor", str(gpus)]
    try:
        with supervised(home, program) as node:
            yield Site(node, folder, gpus)
    finally:
        for each in [*procfs.descendants(daemon.pid), procfs.stat(daemon.pid)]:
            if each is not None:
                os.kill(each.pid, signal.SIGKILL)
        daemon.wait()


def test_what_still_holds_a_gpu_after_the_stop_is_named(site: Site, free_port: int) -> None:
    launch = site.serving(free_port)
    rank = launch.ranks[1].pid
    site.show(rank)
    wait_for(lambda: site.node.snapshot().gpus[1].sample.processes, "the driver's word")

    site.node.post("/v1/down")
    ended = site.node.wait_launch(launch.id, LaunchState.STOPPED)

    assert ended.held == (f"GPU 1 is still held by rank 1 (pid {rank}, 71.0 GiB)",)
    alarms = [each.text for each in site.node.events(launch.id) if isinstance(each, Alarm)]
    assert alarms == list(ended.held)
    status = subprocess.run(
        [sys.executable, "-m", "panel.cli", "status"],
        env=site.node.env,
        capture_output=True,
        text=True,
        check=True,
    )
    assert ended.held[0] in status.stdout

    site.show()

    def free() -> bool:
        seen = site.node.snapshot().launch
        return seen is not None and seen.held == ()

    wait_for(free, "the GPU to be free")


def test_a_stop_that_frees_the_gpus_is_seen_to_do_so(site: Site, free_port: int) -> None:
    launch = site.serving(free_port)
    members = {each.pid for each in launch.processes}
    site.show(launch.ranks[1].pid)
    wait_for(lambda: site.node.snapshot().gpus[1].sample.processes, "the driver's word")

    site.node.post("/v1/down")
    wait_for(lambda: (site.folder / "code").exists(), "the container's end")
    stopping = site.node.snapshot().launch
    assert stopping is not None
    assert stopping.state is LaunchState.STOPPING
    site.show()
    ended = site.node.wait_launch(launch.id, LaunchState.STOPPED)

    assert ended.held == ()
    assert not [pid for pid in members if (found := procfs.stat(pid)) and found.state not in "ZX"]
    assert ended.verdict is not None
    assert ended.verdict.status == "stopped"


def test_a_restart_of_the_supervisor_forgets_not_what_held_the_gpus_before(
    site: Site, free_port: int
) -> None:
    launch = site.serving(free_port)
    wait_for(lambda: any(isinstance(each, Gpu) for each in site.node.events(launch.id)), "GPUs")
    members = {each.pid for each in launch.processes}
    stranger = os.getpid()
    assert stranger not in members
    site.show(stranger)
    wait_for(lambda: site.node.snapshot().gpus[1].sample.processes, "the driver's word")

    site.node.kill(signal.SIGKILL)
    site.node.start()
    wait_for(lambda: site.node.snapshot().gpus, "GPUs after the restart")
    site.node.post("/v1/down")
    ended = site.node.wait_launch(launch.id, LaunchState.STOPPED)

    who = f"a process not known to be of the launch (pid {stranger}, 71.0 GiB)"
    assert ended.held == (f"GPU 1 is still held by {who}",)
