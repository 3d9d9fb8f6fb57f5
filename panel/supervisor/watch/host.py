"""The node itself."""

from __future__ import annotations

import os
import platform
from functools import cache
from pathlib import Path

from panel.domain.snapshot import Host

_MEMORY_STEP = 64 << 20


def sample_host(gpu_note: str, kernel_log_note: str) -> Host:
    """Return the figures of now, rounded so that an idle node does not seem to change."""
    memory = _memory()
    return Host(
        name=platform.node(),
        cpus=len(os.sched_getaffinity(0)),
        load=round(os.getloadavg()[0], 1),
        memory_total=memory.get("MemTotal", 0),
        memory_available=memory.get("MemAvailable", 0) // _MEMORY_STEP * _MEMORY_STEP,
        gpu_note=gpu_note,
        kernel_log_note=kernel_log_note,
    )


@cache
def driver_version() -> str:
    """Return the version of the NVIDIA driver, empty where there is none."""
    try:
        return Path("/sys/module/nvidia/version").read_text().strip()
    except OSError:
        return ""


def _memory() -> dict[str, int]:
    lines = Path("/proc/meminfo").read_text().splitlines()
    return {name: int(rest.split()[0]) << 10 for name, _, rest in (x.partition(":") for x in lines)}
