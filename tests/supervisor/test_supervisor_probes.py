"""GPUs, kernel log, stacks, hangs and figures of a launch, as the supervisor sees them."""

from __future__ import annotations

import asyncio
import os
import signal
import sys
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import msgspec
import pytest

from panel.domain.events import Event, Gpu, Kernel
from panel.domain.gpu import GpuFault, GpuSample
from panel.domain.hang import HangView
from panel.domain.run import Run
from panel.domain.series import Series
from panel.domain.snapshot import LaunchView
from panel.domain.stacks import Stacks
from panel.domain.states import LaunchState
from panel.probes.gpu.sampler import Absent, Fault, Report, Tick
from panel.probes.kernel.lines import parse_line
from panel.supervisor.launch import Launch
from panel.supervisor.probes import Probes
from panel.supervisor.watch.figures import gpu_figures
from panel.supervisor.watch.gpus import GpuWatch
from tests.supervisor.support import Supervised, wait_for


def sample(index: int = 0, **figures: Any) -> GpuSample:
    return GpuSample(
        index=index, uuid=f"GPU-{index}", bus_id=f"0000:0{index}:00.0", name="RTX", **figures
    )


def stand_in(**changes: Any) -> Launch:
    """Return what probes need of a launch of two ranks."""
    events: list[Event] = []
    spec = SimpleNamespace(
        uuid="a",
        t0_unix=1000.0,
        env={},
        world_size=2,
        plan=SimpleNamespace(values=lambda: changes.get("flags", {}), nodes=()),
    )
    launch = SimpleNamespace(
        spec=spec,
        live=True,
        t=100.0,
        events=events,
        record_event=events.append,
        run=Run(),
        first_gpus={},
    )
    return cast(Launch, launch)


def recorded(launch: Launch) -> list[Event]:
    return cast(Any, launch).events


class Sampler:
    """A sampler's process that says what it is told and then waits, or ends."""

    def __init__(self, folder: Path) -> None:
        self.control = folder / "nvidiactl"
        self.control.touch()
        self._script = folder / "sampler.py"

    def command(self, *reports: Report, stays: bool = True) -> list[str]:
        text = "".join(msgspec.json.encode(report).decode() + "\n" for report in reports)
        end = "import time; time.sleep(60)" if stays else ""
        self._script.write_text(
            f"import sys\nsys.stdout.write({text!r})\nsys.stdout.flush()\n{end}\n"
        )
        return [sys.executable, str(self._script)]


@pytest.fixture
def sampler(tmp_path: Path) -> Sampler:
    return Sampler(tmp_path)


async def until(watch: GpuWatch, condition: Any) -> None:
    async with asyncio.timeout(20):
        while not condition(watch):
            await asyncio.sleep(0.01)


async def test_figures_and_faults(sampler: Sampler) -> None:
    told: list[tuple[int, GpuFault]] = []
    tick = Tick((sample(0, replays=5, held={"heat": 1.0}), sample(1)), ("GPU 2: gone",))
    command = sampler.command(tick, Fault(1, "Xid 79", xid=79), Fault(1, "Xid 79", xid=79))
    watch = GpuWatch(
        lambda found, fault: told.append((found.index, fault)), command, sampler.control
    )
    watch.start()
    await until(watch, lambda _: told)
    launch = stand_in()
    first, second = watch.view(launch)
    assert (first.rank, second.rank) == (0, 1)
    assert (first.replays, first.held, first.age) == (0, {}, 0.0)
    assert watch.note == "GPU 2: gone"
    assert [(index, fault.xid) for index, fault in told] == [(1, 79)]
    assert [alarm.kind for alarm in second.alarms] == ["xid"]
    await watch.close()


async def test_counters_count_from_the_launch_on(sampler: Sampler) -> None:
    watch = GpuWatch(lambda *_: None, sampler.command(), sampler.control)
    launch = stand_in()
    watch.samples = (sample(0, replays=100, held={"heat": 50.0}), sample(1))
    watch.view(launch)
    watch.samples = (sample(0, replays=130, held={"heat": 62.5}), sample(1))
    gpu = watch.view(launch)[0]
    assert (gpu.replays, gpu.held) == (30, {"heat": 12.5})
    assert {alarm.kind for alarm in gpu.alarms} == {"replays", "heat"}


async def test_a_silent_sampler_makes_the_figures_old(sampler: Sampler) -> None:
    watch = GpuWatch(lambda *_: None, sampler.command(), sampler.control)
    watch.samples = (sample(0, util=50),)
    (gpu,) = watch.view(None)
    assert gpu.age > 0
    assert gpu_figures([gpu]) == {"gpu0.util": None}


async def test_why_there_are_no_figures(sampler: Sampler, tmp_path: Path) -> None:
    watch = GpuWatch(lambda *_: None, sampler.command(), tmp_path / "absent")
    watch.start()
    assert watch.note == "no NVIDIA driver"
    await watch.close()
    command = sampler.command(Absent("Driver/library version mismatch"), stays=False)
    watch = GpuWatch(lambda *_: None, command, sampler.control)
    watch.start()
    await until(watch, lambda each: "mismatch" in each.note)
    assert watch.view(None) == ()
    await watch.close()


async def test_ranks_on_the_cpu_have_no_gpu(sampler: Sampler) -> None:
    watch = GpuWatch(lambda *_: None, sampler.command(), sampler.control)
    watch.samples = (sample(0), sample(1))
    assert [gpu.rank for gpu in watch.view(stand_in(flags={"device": "cpu"}))] == [None, None]


async def test_kernel_lines_go_into_the_evidence_and_to_the_gpu(sampler: Sampler) -> None:
    launch = stand_in()
    watch = GpuWatch(lambda *_: None, sampler.command(), sampler.control)
    watch.samples = (sample(0), sample(1))
    probes = Probes(lambda: launch, watch)
    line = parse_line("NVRM: Xid (PCI:0000:01:00): 79, GPU has fallen off the bus.")
    assert line is not None
    probes._note(0.0, line)
    probes._note(0.0, line)
    assert recorded(launch)[0] == Kernel(t=100.0, text=line.text, rank=1)
    assert [fault.xid for fault in probes.gpus(launch)[1].faults] == [79]
    probes.record_gpus(launch)
    noted = [event for event in recorded(launch) if isinstance(event, Gpu)]
    assert [(event.bus_id, event.rank) for event in noted] == [
        ("0000:00:00.0", 0),
        ("0000:01:00.0", 1),
    ]


def rank(view: LaunchView, number: int) -> int:
    return next(each.pid for each in view.ranks if each.rank == number)


def test_stacks_of_a_running_launch(node: Supervised, free_port: int) -> None:
    view = node.up(port=free_port)
    reply = node.http.post(f"/v1/launches/{view.id}/stacks", json={})
    found = msgspec.json.decode(reply.content, type=Stacks)
    assert [each.source for each in found.processes] == ["rank-0", "rank-1", "frontend"]
    assert all(each.threads for each in found.processes)
    assert (0, 1) in [group.ranks for group in found.groups]
    kept = node.home.launch(view.id) / found.file
    assert msgspec.json.decode(kept.read_bytes(), type=Stacks) == found
    assert node.http.post("/v1/launches/99/stacks", json={}).status_code == 404


def test_survivors_leave_their_stacks_at_the_first_death(node: Supervised, free_port: int) -> None:
    view = node.up(port=free_port)
    os.kill(rank(view, 1), signal.SIGKILL)
    node.wait_launch(view.id, LaunchState.CRASHED)
    (kept,) = (node.home.launch(view.id) / "stacks").glob("*-death.json")
    found = msgspec.json.decode(kept.read_bytes(), type=Stacks)
    assert [each.source for each in found.processes] == ["rank-0", "frontend"]
    assert all(each.threads for each in found.processes)


def test_a_stopped_rank_is_suspected_and_looked_at(node: Supervised, free_port: int) -> None:
    view = node.up(port=free_port)
    os.kill(rank(view, 1), signal.SIGSTOP)

    def suspected() -> LaunchView | None:
        launch = node.snapshot().launch
        return launch if launch and launch.suspicion else None

    found = wait_for(suspected, "a suspicion")
    assert found.suspicion is not None
    assert found.suspicion.ranks == (1,)

    def climbed() -> HangView | None:
        ladder = node.get(f"/v1/launches/{view.id}/hang", HangView)
        return ladder if ladder.rungs[2].done else None

    ladder = wait_for(climbed, "the ladder")
    look, ras, stacks, flight, core = ladder.rungs
    assert look.done
    assert "rank 1 without a beat" in look.result
    assert "no GPU" in ras.refused
    assert stacks.result.startswith("rank 1 apart from the others: stopped by a signal in ")
    assert flight.refused
    assert core.refused == "the ranks use no GPU, so no CUDA kernels"
    taken = msgspec.json.decode((node.home.launch(view.id) / stacks.file).read_bytes(), type=Stacks)
    assert [each.state for each in taken.processes if each.rank == 1] == ["T"]
    again = node.http.post(f"/v1/launches/{view.id}/hang/stacks")
    assert again.status_code == 200
    assert node.http.post(f"/v1/launches/{view.id}/hang/ras").status_code == 400
    assert node.http.post(f"/v1/launches/{view.id}/hang/dance").status_code == 400

    os.kill(rank(view, 1), signal.SIGCONT)
    wait_for(lambda: not suspected(), "the end of the suspicion")


def test_figures_are_kept_for_the_launch(node: Supervised, free_port: int) -> None:
    view = node.up(port=free_port)
    path = f"/v1/launches/{view.id}/series?name=engine."

    def figures() -> Series | None:
        found = node.get(path, Series)
        return found if len(found.times) > 1 else None

    running = wait_for(figures, "two seconds of figures")
    assert running.values["engine.running"][-1] == 2
    assert node.http.get(f"{path}&limit=x").status_code == 400
    node.post("/v1/down")
    node.wait_launch(view.id, LaunchState.STOPPED)
    kept = node.get(path, Series)
    assert kept.times[: len(running.times)] == running.times
    assert len(node.get(f"{path}&limit=1", Series).times) == 1
    assert node.http.get("/v1/launches/99/series").status_code == 404
