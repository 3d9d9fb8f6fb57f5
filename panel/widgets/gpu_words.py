"""One GPU in the few cells that a table has for it; `-` is what the GPU does not say."""

from __future__ import annotations

from panel.domain.gpu import Gpu, GpuAlarm, GpuSample
from panel.domain.snapshot import Snapshot
from panel.widgets.words import span_of

_GIB = 1 << 30
_GB = 1e9
UNKNOWN = "-"
_BRIEF = {
    "pcie_width": "link too narrow",
    "pcie_gen": "link too slow",
    "replays": "link has errors",
    "heat": "slowed by heat",
    "power": "slowed by power",
    "brake": "power brake",
    "ecc": "memory errors",
    "remap": "memory is worn",
    "nvlink": "NVLink is down",
    "recovery": "wants a reset",
}
"""Kinds of alarms in the 15 cells that a table of 80 columns leaves; of others their number."""


def on_gpus(snapshot: Snapshot) -> bool:
    """Return whether the launch computes on GPUs that are known."""
    launch = snapshot.launch
    over_nodes = launch is not None and any(each.node for each in launch.processes)
    gpus = snapshot.elsewhere if over_nodes else snapshot.gpus
    return bool(gpus and launch and launch.flags.get("device") != "cpu")


def by_rank(snapshot: Snapshot) -> dict[int, Gpu]:
    """Return the GPU of each rank."""
    gpus = (*snapshot.gpus, *snapshot.elsewhere)
    return {gpu.rank: gpu for gpu in gpus if gpu.rank is not None}


def name(gpu: Gpu) -> str:
    """Return `GPU 3, rank 5`."""
    rank = "" if gpu.rank is None else f", rank {gpu.rank}"
    return f"GPU {gpu.sample.index}{rank}"


def trouble(gpu: Gpu) -> str:
    """Return why the figures are of the past; empty where they are of now."""
    if gpu.sample.trouble:
        return gpu.sample.trouble
    return f"figures are {span_of(gpu.age)} old" if gpu.age else ""


def worst(gpu: Gpu | None) -> GpuAlarm | None:
    """Return the alarm to show beside a rank: notes are for the GPU screen alone."""
    alarms = gpu.alarms if gpu else ()
    return next((alarm for alarm in alarms if alarm.severity != "note"), None)


def in_words(gpu: Gpu | None, room: int) -> str:
    """Return what is the matter with a GPU in at most `room` cells where that can be said.

    Empty where nothing is.
    """
    alarm = worst(gpu)
    if alarm is not None:
        text, brief = alarm.text, _BRIEF.get(alarm.kind, alarm.text.partition(":")[0])
    elif gpu is not None and trouble(gpu):
        text = trouble(gpu)
        brief = "GPU is silent" if gpu.sample.trouble else f"{span_of(gpu.age)} old"
    else:
        return ""
    return text if len(text) <= room else brief


def percent(value: int | None) -> str:
    """Return `71%`."""
    return UNKNOWN if value is None else f"{value}%"


def memory(sample: GpuSample) -> str:
    """Return GiB used and there: `88/96G`."""
    if sample.memory_used is None or sample.memory_total is None:
        return UNKNOWN
    return f"{sample.memory_used / _GIB:.0f}/{sample.memory_total / _GIB:.0f}G"


def number(value: float | None) -> str:
    """Return `412`."""
    return UNKNOWN if value is None else f"{value:.0f}"


def of_limit(value: float | None, limit: float | None) -> str:
    """Return `412/600`."""
    return number(value) if limit is None else f"{number(value)}/{number(limit)}"


def traffic(into: float | None, out: float | None) -> str:
    """Return bytes a second in GB/s, in and out: `1.2/0.8`."""
    return UNKNOWN if into is None and out is None else f"{gigabytes(into)}/{gigabytes(out)}"


def gigabytes(rate: float | None) -> str:
    """Return bytes a second in GB/s, in at most three cells below 1 TB/s."""
    if rate is None:
        return UNKNOWN
    return f"{rate / _GB:.1f}" if rate < 9.95 * _GB else f"{rate / _GB:.0f}"


def link(sample: GpuSample) -> str:
    """Return generation and width of the PCIe link: `5x16`."""
    if sample.pcie_gen is None or sample.pcie_width is None:
        return UNKNOWN
    return f"{sample.pcie_gen}x{sample.pcie_width}"
