"""What looks at the node all the time: GPUs and the kernel's log. Faults go to the evidence."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable

from panel.domain.events import Gpu as GpuEvent
from panel.domain.events import Kernel
from panel.domain.gpu import Gpu, GpuFault, GpuSample
from panel.probes.kernel.lines import KernelLine, rank_of, words
from panel.probes.kernel.reader import KernelLog
from panel.probes.pci import bridge_of
from panel.supervisor.launch import Launch
from panel.supervisor.watch.gpus import GpuWatch

_CLOCKS_APART_S = 5.0
"""The kernel stamps its log by a clock of its own, which may drift from CLOCK_MONOTONIC."""


class Probes:
    """Belongs to the event loop that starts it."""

    def __init__(self, running: Callable[[], Launch | None], gpus: GpuWatch | None = None) -> None:
        """`running` returns the launch whose evidence takes what is found."""
        self._running = running
        self._gpus = gpus or GpuWatch(self._faulted)
        self._loop: asyncio.AbstractEventLoop | None = None
        self._kernel = KernelLog(self._heard)

    @property
    def gpu_note(self) -> str:
        """Why there are no GPU figures; empty where there are."""
        return self._gpus.note

    @property
    def kernel_note(self) -> str:
        """Why the kernel's log is not read; empty where it is."""
        return self._kernel.trouble

    def start(self) -> None:
        """Begin to look."""
        self._loop = asyncio.get_running_loop()
        self._gpus.start()
        self._kernel.start()

    async def close(self) -> None:
        """End."""
        await self._gpus.close()
        await asyncio.to_thread(self._kernel.close)

    def gpus(self, launch: Launch | None) -> tuple[Gpu, ...]:
        """Return the GPUs with the ranks of a launch."""
        return self._gpus.view(launch)

    def held(self, launch: Launch) -> tuple[str, ...] | None:
        """Return what is still held of the GPUs after a launch, None while that is not known."""
        return self._gpus.held(launch)

    def record_gpus(self, launch: Launch) -> None:
        """Write a sample of each GPU into the evidence."""
        for gpu in self.gpus(launch):
            launch.record_event(gpu_event(launch.t, gpu.sample, gpu.rank))

    def _faulted(self, sample: GpuSample, fault: GpuFault) -> None:
        launch = self._running()
        if launch is not None:
            ranks = {gpu.sample.index: gpu.rank for gpu in self.gpus(launch)}
            rank = ranks.get(sample.index)
            launch.record_event(gpu_event(launch.t, sample, rank, fault.xid))

    def _heard(self, t_mono: float, line: KernelLine) -> None:
        """Called by the log's own thread."""
        if self._loop is not None:
            self._loop.call_soon_threadsafe(self._note, t_mono, line)

    def _note(self, t_mono: float, line: KernelLine) -> None:
        fault = GpuFault(t_unix=round(time.time(), 3), text=words(line), xid=line.number)
        for sample in self._gpus.samples:
            if line.kind in ("xid", "aer") and line.bus_id in _places(sample):
                self._gpus.note_fault(sample.index, fault)
        launch = self._running()
        if launch is not None:
            now = time.monotonic()
            behind = now - t_mono if abs(now - t_mono) < _CLOCKS_APART_S else 0.0
            t = round(launch.t - behind, 6)
            launch.record_event(Kernel(t=t, text=line.text, rank=self._rank_of(line, launch)))

    def _rank_of(self, line: KernelLine, launch: Launch) -> int | None:
        by_pid = {
            process.pid: process.rank
            for process in launch.run.processes.values()
            if process.rank is not None
        }
        by_bus = {
            place: gpu.rank
            for gpu in self.gpus(launch)
            if gpu.rank is not None
            for place in _places(gpu.sample)
        }
        return rank_of(line, by_bus, by_pid)


def _places(sample: GpuSample) -> tuple[str, ...]:
    """Return the bus ids of a GPU and of the port above it: PCIe errors name either."""
    bridge = bridge_of(sample.bus_id)
    return (sample.bus_id,) if bridge is None else (sample.bus_id, bridge)


def gpu_event(t: float, sample: GpuSample, rank: int | None, xid: int | None = None) -> GpuEvent:
    """Return a sample as the evidence keeps it."""
    return GpuEvent(
        t=round(t, 6),
        index=sample.index,
        bus_id=sample.bus_id,
        rank=rank,
        util=sample.util,
        mem_used=sample.memory_used,
        power=sample.power,
        xid=xid,
        processes=tuple((each.pid, each.memory or 0) for each in sample.processes),
    )
