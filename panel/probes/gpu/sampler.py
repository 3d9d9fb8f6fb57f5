"""All GPUs of the node, once a second."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from typing import Any

import msgspec
import pynvml

from panel.domain.gpu import GpuSample
from panel.probes.gpu.device import Device, nvml_words
from panel.probes.gpu.fields import WINDOW_S
from panel.probes.gpu.library import Nvml

FAST_S = 1.0
WINDOW_EVERY = 2
"""Ticks between two figures of a GPU's PCIe traffic."""
SLOW_EVERY = 15
"""Ticks between two readings of the slow figures."""
_EVENTS = (
    pynvml.nvmlEventTypeXidCriticalError
    | pynvml.nvmlEventTypeDoubleBitEccError
    | pynvml.nvmlEventTypeFatalPoisonError
    | pynvml.nvmlEventTypeGpuUnavailableError
    | pynvml.nvmlEventTypeGpuRecoveryAction
)
_EVENT_WORDS = {
    pynvml.nvmlEventTypeDoubleBitEccError: "a double-bit memory error",
    pynvml.nvmlEventTypeFatalPoisonError: "poisoned memory was read",
    pynvml.nvmlEventTypeGpuUnavailableError: "the GPU is not available any more",
    pynvml.nvmlEventTypeGpuRecoveryAction: "the driver asks for a recovery action",
}


class Tick(msgspec.Struct, frozen=True, tag="tick"):
    """The GPUs at one moment; `missing`: those that are counted but do not answer at all."""

    samples: tuple[GpuSample, ...]
    missing: tuple[str, ...] = ()


class Fault(msgspec.Struct, frozen=True, tag="fault", omit_defaults=True):
    """An event of a GPU."""

    index: int
    text: str
    xid: int | None = None


class Absent(msgspec.Struct, frozen=True, tag="absent"):
    """There are no figures, and why."""

    reason: str


Report = Tick | Fault | Absent


class Sampler:
    """Looks at the GPUs of an NVML that has been initialised; belongs to one thread.

    `pause` lets a short time pass, over which traffic is counted.
    """

    def __init__(self, nvml: Nvml, pause: Callable[[float], None] = time.sleep) -> None:
        """Find the GPUs. Raises `NVMLError`."""
        self._pause = pause
        self.devices: list[Device] = []
        self._missing: list[str] = []
        self._ticks = 0
        for index in range(nvml.nvmlDeviceGetCount()):
            try:
                self.devices.append(Device(nvml, index))
            except pynvml.NVMLError as error:
                # One that is off the bus is counted, but has no handle.
                self._missing.append(f"GPU {index}: {nvml_words(error)}")

    def tick(self) -> Tick:
        """Sample every GPU."""
        slow = self._ticks % SLOW_EVERY == 0
        for device in self.devices:
            # The two readings of a window cost 0.8 ms each: half of the GPUs at a time.
            if device.index % WINDOW_EVERY == self._ticks % WINDOW_EVERY:
                device.open_window()
        self._pause(WINDOW_S)
        samples = tuple(device.sample(slow) for device in self.devices)
        self._ticks += 1
        return Tick(samples, tuple(self._missing))


def watch_faults(nvml: Nvml) -> Iterator[Fault | None]:
    """Yield the faults of all GPUs as they happen, None about once a second.

    Ends at once where no GPU reports any, as in some containers. What happened before is not told.
    Blocks: belongs to a thread of its own.
    """
    events = nvml.nvmlEventSetCreate()
    indices: dict[str, int] = {}
    for index in range(nvml.nvmlDeviceGetCount()):
        try:
            gpu = nvml.nvmlDeviceGetHandleByIndex(index)
            wanted = nvml.nvmlDeviceGetSupportedEventTypes(gpu) & _EVENTS
            if wanted:
                nvml.nvmlDeviceRegisterEvents(gpu, wanted, events)
                indices[nvml.nvmlDeviceGetUUID(gpu)] = index
        except pynvml.NVMLError:
            continue
    while indices:
        try:
            data = nvml.nvmlEventSetWait_v2(events, 1000)
        except pynvml.NVMLError_Timeout:
            yield None
            continue
        yield _fault(indices.get(nvml.nvmlDeviceGetUUID(data.device), -1), data)


def _fault(index: int, data: Any) -> Fault:
    if data.eventType == pynvml.nvmlEventTypeXidCriticalError:
        return Fault(index, f"Xid {data.eventData}", xid=int(data.eventData))
    return Fault(index, _EVENT_WORDS.get(data.eventType, f"event {data.eventType:#x}"))
