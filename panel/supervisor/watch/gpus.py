"""The GPUs of the node, as the sampler's own process reports them."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import os
import sys
import time
from collections.abc import Callable, Sequence
from pathlib import Path

import msgspec

from panel.domain.gpu import Gpu, GpuFault, GpuSample
from panel.probes.gpu.alarms import alarms, since
from panel.probes.gpu.ranks import rank_of_gpu
from panel.probes.gpu.sampler import Absent, Fault, Report, Tick
from panel.supervisor.keepers import ROOT
from panel.supervisor.launch import Launch
from panel.supervisor.watch.held import as_first_seen, still_held

log = logging.getLogger(__name__)

SAMPLER = (sys.executable, "-m", "panel.probes.gpu")
CONTROL = Path("/dev/nvidiactl")
"""There where the driver is loaded and this node, or container, may use it."""
FRESH_S = 3.0
SILENT_S = 60.0
"""After so long without a word the sampler is killed. One that hangs in the driver does not even
die: then no other one is started."""
AGAIN_S = 30.0
_ENDS_S = 2.0
_LINE = 1 << 20
_report = msgspec.json.Decoder(Report)


class GpuWatch:
    """Keeps what the sampler said last; belongs to the event loop that starts it."""

    def __init__(
        self,
        faulted: Callable[[GpuSample, GpuFault], None],
        command: Sequence[str] = SAMPLER,
        control: Path = CONTROL,
    ) -> None:
        """`faulted` is told of each fault as it happens."""
        self.note = ""
        self.samples: tuple[GpuSample, ...] = ()
        self._faulted = faulted
        self._command = command
        self._control = control
        self._seen = 0.0
        self._faults: list[tuple[int, GpuFault]] = []
        self._baseline: tuple[str, dict[int, GpuSample]] = ("", {})
        self._task: asyncio.Task[None] | None = None

    def start(self) -> None:
        """Begin to sample, or note why there is nothing to sample."""
        if not self._control.exists():
            self.note = "no NVIDIA driver"
            return
        self.note = "no figures yet"
        self._task = asyncio.create_task(self._sample())

    async def close(self) -> None:
        """End the sampler."""
        if self._task is not None:
            self._task.cancel()
            with contextlib.suppress(asyncio.CancelledError):
                await self._task

    def note_fault(self, index: int, fault: GpuFault) -> bool:
        """Keep a fault that kernel or NVML reported; False where the other one did already."""
        known = any(
            index == other and fault.xid == earlier.xid and fault.t_unix - earlier.t_unix < FRESH_S
            for other, earlier in self._faults
        )
        if not known:
            self._faults.append((index, fault))
        return not known

    def view(self, launch: Launch | None) -> tuple[Gpu, ...]:
        """Return the GPUs as panels show them; what grows is counted from the launch on."""
        live = launch is not None and launch.live
        ranks = gpu_ranks(self.samples, launch) if launch is not None and live else {}
        before = self._since(launch)
        silent = time.monotonic() - self._seen
        return tuple(
            self._show(sample, before.get(sample.index, sample), ranks, silent, launch)
            for sample in self.samples
        )

    def held(self, launch: Launch) -> tuple[str, ...] | None:
        """Return what is still held of the GPUs after a launch, None before they were looked at
        since its end."""
        if not self.samples:
            return ()
        ended = launch.spec.t0_mono_ns / 1e9 + launch.t
        if self._seen <= ended:
            return None
        before, outside = self._since(launch), launch.spec.outside
        return still_held(before, self.samples, launch.run, outside=outside)

    def _show(
        self,
        sample: GpuSample,
        before: GpuSample,
        ranks: dict[int, int],
        silent: float,
        launch: Launch | None,
    ) -> Gpu:
        begun = launch.spec.t0_unix if launch else 0.0
        faults = tuple(
            fault for index, fault in self._faults if index == sample.index and fault.t_unix > begun
        )
        replays = max(0, (sample.replays or 0) - (before.replays or 0))
        held = since(sample.held, before.held)
        seconds = launch.t if launch else 0.0
        return Gpu(
            sample=sample,
            rank=ranks.get(sample.index),
            age=float(int(silent)) if silent > FRESH_S else 0.0,
            replays=replays,
            held=held,
            faults=faults,
            alarms=alarms(sample, replays=replays, held=held, seconds=seconds, faults=faults),
        )

    def _since(self, launch: Launch | None) -> dict[int, GpuSample]:
        """Return the first samples of this launch, or as many of it as there are."""
        uuid = launch.spec.uuid if launch else ""
        if self._baseline[0] != uuid or not self._baseline[1]:
            first = launch.first_gpus if launch else {}
            self._baseline = (
                uuid,
                {each.index: as_first_seen(each, first.get(each.index)) for each in self.samples},
            )
        return self._baseline[1]

    async def _sample(self) -> None:
        while True:
            process = await asyncio.create_subprocess_exec(
                *self._command,
                stdin=asyncio.subprocess.DEVNULL,
                stdout=asyncio.subprocess.PIPE,
                stderr=asyncio.subprocess.DEVNULL,
                cwd=ROOT,
                limit=_LINE,
            )
            try:
                await self._listen(process)
            finally:
                with contextlib.suppress(ProcessLookupError):
                    process.kill()
                with contextlib.suppress(TimeoutError):
                    await asyncio.wait_for(process.wait(), _ENDS_S)
            await process.wait()
            log.warning("the GPU sampler ended: %s", self.note or f"code {process.returncode}")
            await asyncio.sleep(AGAIN_S)

    async def _listen(self, process: asyncio.subprocess.Process) -> None:
        assert process.stdout is not None
        while True:
            try:
                async with asyncio.timeout(SILENT_S):
                    line = await process.stdout.readline()
            except TimeoutError:
                self.note = f"the driver does not answer for {SILENT_S:g} s; nvidia-smi hangs too?"
                return
            if not line:
                return
            self._take(_report.decode(line))

    def _take(self, report: Report) -> None:
        match report:
            case Tick(samples=samples, missing=missing):
                self.samples = samples
                self._seen = time.monotonic()
                self.note = "; ".join(missing)
            case Absent(reason=reason):
                self.note = reason
                self.samples = ()
            case Fault(index=index, text=text, xid=xid):
                fault = GpuFault(t_unix=round(time.time(), 3), text=text, xid=xid)
                for sample in self.samples:
                    if sample.index == index and self.note_fault(index, fault):
                        self._faulted(sample, fault)


def gpu_ranks(samples: Sequence[GpuSample], launch: Launch) -> dict[int, int]:
    """Return the rank by GPU index; empty where the ranks compute on the CPU."""
    values, world = launch.spec.plan.values(), launch.spec.world_size
    if values.get("device") == "cpu" or launch.spec.plan.nodes:
        return {}
    # One of several nodes has a part of the ranks.
    here = world // max(1, int(values.get("nnodes", "1")))
    first = here * int(values.get("node-rank", "0"))
    found = rank_of_gpu(samples, {**os.environ, **launch.spec.env}, here)
    return {index: rank + first for index, rank in found.items()}
