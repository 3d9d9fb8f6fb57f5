"""Records a session of NVML for the tests: python tools/record_nvml.py FILE [LOAD COMMAND …]

Idle, then the command, then idle again, on all GPUs of the host. UUIDs are replaced.
"""

from __future__ import annotations

import subprocess
import sys
import time
from pathlib import Path

import msgspec
import pynvml

from panel.probes.gpu.recording import Recorder
from panel.probes.gpu.sampler import FAST_S, SLOW_EVERY, Sampler

IDLE_TICKS = 4
OTHER_FIELDS = (
    *range(74, 82), 94, 95, 138, 139, 161, 162, 163, 169, *range(173, 184), 185, 186, 197, 198,
    *range(202, 205), 230, 269, 270, 271,
)  # fmt: skip
"""What later versions may want to read."""


class Library:
    """pynvml, with UUIDs that belong to nobody."""

    def __init__(self) -> None:
        self._invented: dict[str, str] = {}

    def __getattr__(self, name: str) -> object:
        return getattr(pynvml, name)

    def nvmlDeviceGetUUID(self, gpu: object) -> str:  # noqa: N802
        """Return an invented one of the same form."""
        number = len(self._invented)
        invented = f"GPU-{number:08x}-0000-4000-8000-{number:012x}"
        return self._invented.setdefault(pynvml.nvmlDeviceGetUUID(gpu), invented)


def main(path: Path, load: list[str]) -> None:
    """Record into `path`."""
    nvml = Recorder(Library())
    nvml.nvmlInit()
    sampler = Sampler(nvml, lambda seconds: half_tick(nvml, seconds))
    once(nvml, len(sampler.devices))
    work: subprocess.Popen[bytes] | None = None
    ticks, left = 0, IDLE_TICKS
    while left:
        begun = time.monotonic()
        sampler.tick()
        if ticks % SLOW_EVERY == 0:
            others(nvml, len(sampler.devices))
        ticks += 1
        if ticks == IDLE_TICKS and load:
            work = subprocess.Popen(load)
        busy = ticks < IDLE_TICKS or (work is not None and work.poll() is None)
        left -= not busy
        nvml.tick += 1
        time.sleep(max(0.0, begun + FAST_S - time.monotonic()))
    path.write_bytes(msgspec.json.encode(nvml.recording()))
    for key, entry in sorted(nvml.recording().calls.items()):
        if "gpu0" in key:
            print(f"{entry.us:>10.1f} us  {key}  {entry.answers[-1][1]}")


def half_tick(nvml: Recorder, seconds: float) -> None:
    """Let the window of a tick pass."""
    time.sleep(seconds)
    nvml.tick += 1


def once(nvml: Recorder, count: int) -> None:
    """Ask for what does not change."""
    nvml.nvmlSystemGetDriverVersion()
    nvml.nvmlSystemGetCudaDriverVersion()
    gpus = [nvml.nvmlDeviceGetHandleByIndex(index) for index in range(count)]
    for one in gpus:
        nvml.nvmlDeviceGetSupportedEventTypes(one)
        for other in gpus:
            if one is not other:
                nvml.nvmlDeviceGetTopologyCommonAncestor(one, other)
                for capability in range(4):
                    try:
                        nvml.nvmlDeviceGetP2PStatus(one, other, capability)
                    except pynvml.NVMLError:
                        continue


def others(nvml: Recorder, count: int) -> None:
    """Ask for the fields that the sampler does not read, and for the sampled traffic."""
    for index in range(count):
        gpu = nvml.nvmlDeviceGetHandleByIndex(index)
        nvml.nvmlDeviceGetFieldValues(gpu, [(field, 0) for field in OTHER_FIELDS])
        for counter in range(2):
            nvml.nvmlDeviceGetPcieThroughput(gpu, counter)


if __name__ == "__main__":
    main(Path(sys.argv[1]), sys.argv[2:])
