"""What the host does to traffic between GPUs: IOMMU and the access control of PCIe bridges."""

from __future__ import annotations

import re
from pathlib import Path
from typing import NamedTuple

from panel.probes.check import Check

_BRIDGE = "0x0604"
_FIRST_EXTENDED = 0x100
_ACS = 0x000D
_ACS_CONTROL = 6
_REDIRECTS = 0x0C
"""P2P request redirect and P2P completion redirect: such traffic takes the way over the root."""


class Bridges(NamedTuple):
    """PCIe bridges of the node."""

    seen: int
    redirecting: int
    """Those whose access control sends traffic between GPUs over the root."""
    hidden: int
    """Those whose settings we may not read."""


class Iommu(NamedTuple):
    """The kernel's IOMMU."""

    active: bool
    passthrough: bool


def read_iommu(
    units: Path = Path("/sys/class/iommu"), command: Path = Path("/proc/cmdline")
) -> Iommu:
    """Return whether an IOMMU translates, and whether the command line makes it pass through."""
    try:
        active = any(units.iterdir())
    except OSError:
        active = False
    try:
        words = command.read_text().split()
    except OSError:
        words = []
    return Iommu(active, "iommu=pt" in words or "iommu.passthrough=1" in words)


def read_bridges(devices: Path = Path("/sys/bus/pci/devices")) -> Bridges:
    """Look at every bridge; only root sees more than the first 64 bytes of a configuration."""
    seen = redirecting = hidden = 0
    for device in sorted(devices.iterdir()) if devices.is_dir() else ():
        try:
            if not (device / "class").read_text().startswith(_BRIDGE):
                continue
            config = (device / "config").read_bytes()
        except OSError:
            continue
        seen += 1
        hidden += len(config) <= _FIRST_EXTENDED
        redirecting += bool(acs_control(config) & _REDIRECTS)
    return Bridges(seen, redirecting, hidden)


def acs_control(config: bytes) -> int:
    """Return the ACS control word of a configuration space; 0 where it has none."""
    place = _FIRST_EXTENDED
    visited = set()
    while place >= _FIRST_EXTENDED and place + 8 <= len(config) and place not in visited:
        visited.add(place)
        header = int.from_bytes(config[place : place + 4], "little")
        if header & 0xFFFF == _ACS:
            where = place + _ACS_CONTROL
            return int.from_bytes(config[where : where + 2], "little")
        place = header >> 20
    return 0


def iommu(found: Iommu, gpus: int) -> Check:
    """Judge the IOMMU, which makes GPUs on PCIe hang in their first collective."""
    if not found.active:
        return Check(name="iommu", grade="pass", text="off, or hidden by a virtual machine")
    if found.passthrough or gpus < 2:
        return Check(name="iommu", grade="pass", text="on, passes through")
    return Check(
        name="iommu",
        grade="warn",
        text="on and translating: P2P between GPUs may hang or corrupt data",
        mend="kernel parameter iommu=pt (or iommu=off), then reboot",
    )


def acs(found: Bridges, gpus: int) -> Check:
    """Judge the access control services of the bridges."""
    if gpus < 2 or not found.seen:
        return Check(name="acs", grade="info", text="no traffic between GPUs to redirect")
    if found.redirecting:
        return Check(
            name="acs",
            grade="warn",
            text=f"{found.redirecting} of {found.seen} PCIe bridges send traffic between GPUs over"
            " the root complex: slow P2P, or hangs",
            mend="switch ACS off in the BIOS, or by setpci -s BRIDGE ECAP_ACS+6.w=0000",
        )
    if found.hidden:
        text = f"settings of {found.hidden} of {found.seen} PCIe bridges are for root only"
        return Check(name="acs", grade="info", text=text, mend="sudo moepanel doctor")
    return Check(name="acs", grade="pass", text=f"off on all {found.seen} PCIe bridges")


def bridge_of(bus_id: str, devices: Path = Path("/sys/bus/pci/devices")) -> str | None:
    """Return the bus id of the bridge above a device; AER lines name either."""
    try:
        parent = (devices / bus_id).resolve(strict=True).parent.name
    except OSError:
        return None
    return parent if re.fullmatch(r"[0-9a-f]{4}:[0-9a-f]{2}:[0-9a-f]{2}\.[0-7]", parent) else None
