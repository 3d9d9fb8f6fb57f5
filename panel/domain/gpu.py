"""GPUs: what NVML says of one at a moment, and what a panel shows of it."""

from __future__ import annotations

from typing import Literal

import msgspec


class GpuProcess(msgspec.Struct, frozen=True, kw_only=True):
    """A process with a CUDA context, by its pid on the host, which in a container is not ours."""

    pid: int
    memory: int | None
    """Bytes."""


class GpuSample(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """One GPU at one moment. None: this GPU or driver does not say."""

    index: int
    """In the order of the PCI bus."""
    uuid: str
    bus_id: str
    """`0000:06:00.0`"""
    name: str
    trouble: str = ""
    """Why the figures are not of now; empty where they are."""
    util: int | None = None
    """Per cent of the time in which a kernel ran."""
    memory_used: int | None = None
    memory_total: int | None = None
    power: float | None = None
    """Watts."""
    power_limit: float | None = None
    temperature: int | None = None
    """Degrees Celsius."""
    clock: int | None = None
    """MHz of the multiprocessors."""
    clock_max: int | None = None
    reasons: tuple[str, ...] = ()
    """What holds the clocks down now: idle, power, heat, brake, …"""
    held: dict[str, float] = {}
    """Seconds for which each reason has held them down since the driver was loaded."""
    pcie_gen: int | None = None
    pcie_width: int | None = None
    pcie_gen_max: int | None = None
    """What card and slot can do together."""
    pcie_width_max: int | None = None
    pcie_gen_card: int | None = None
    """What the card could do in a better slot."""
    pcie_rx: float | None = None
    """Bytes a second into the GPU."""
    pcie_tx: float | None = None
    replays: int | None = None
    """PCIe packets that had to be sent again, since the driver was loaded."""
    nvlinks: int | None = None
    """Links that are up."""
    nvlinks_down: int | None = None
    nvlink_rx: float | None = None
    """Bytes a second over all links."""
    nvlink_tx: float | None = None
    ecc: int | None = None
    """Uncorrected memory errors since the driver was loaded."""
    remapped: int | None = None
    """Memory rows replaced after uncorrected errors, in the card's life."""
    remap_pending: bool | None = None
    remap_failed: bool | None = None
    recovery: str = ""
    """What the driver wants to be done, in words; empty for nothing."""
    processes: tuple[GpuProcess, ...] = ()


class GpuFault(msgspec.Struct, frozen=True, kw_only=True):
    """Something that NVML or the kernel reported of a GPU."""

    t_unix: float
    text: str
    xid: int | None = None


class GpuAlarm(msgspec.Struct, frozen=True, kw_only=True):
    """Something about a GPU that an operator should know."""

    kind: str
    """pcie_width, pcie_gen, replays, power, heat, brake, ecc, remap, xid, nvlink, recovery."""
    severity: Literal["note", "warning", "failure"]
    text: str
    """What it is, in a few words."""
    do: str
    """What to do about it."""


class Gpu(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """A GPU as panels show it."""

    sample: GpuSample
    rank: int | None = None
    age: float = 0.0
    """Seconds since the sample, 0 while it is fresh."""
    replays: int = 0
    """Since the launch."""
    held: dict[str, float] = {}
    """Seconds since the launch for which power, heat, … held the clocks down."""
    faults: tuple[GpuFault, ...] = ()
    """Since the launch, newest last."""
    alarms: tuple[GpuAlarm, ...] = ()
