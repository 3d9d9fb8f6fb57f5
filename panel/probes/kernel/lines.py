"""Lines of the kernel's log that concern an engine. Pure."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Literal

import msgspec

from panel.probes.gpu.device import bus_id
from panel.probes.gpu.xids import explain

Kind = Literal["xid", "sxid", "aer", "oom", "segfault"]


class KernelLine(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """One report."""

    kind: Kind
    text: str
    bus_id: str | None = None
    """`0000:06:00.0`"""
    pid: int | None = None
    number: int | None = None
    """Of an Xid or SXid."""


_BUS = r"(?P<bus>[0-9a-fA-F]{4,8}:[0-9a-fA-F]{2}:[0-9a-fA-F]{2}(?:\.[0-7])?)"
_PATTERNS: tuple[tuple[Kind, re.Pattern[str]], ...] = (
    ("sxid", re.compile(rf"SXid \(PCI:{_BUS}\): (?P<number>\d+), .*")),
    ("xid", re.compile(rf"Xid \(PCI:{_BUS}\): (?P<number>\d+)(?:, pid='?(?P<pid>\d+)'?)?.*")),
    (
        "oom",
        re.compile(r"(?:Out of memory|out of memory)[^:]*: Kill(?:ed)? process (?P<pid>\d+).*"),
    ),
    ("oom", re.compile(r"oom-kill:constraint=\S*?\bpid=(?P<pid>\d+).*")),
    ("segfault", re.compile(r"\S+\[(?P<pid>\d+)\]: segfault at .*")),
    ("segfault", re.compile(r"traps: \S+\[(?P<pid>\d+)\] .*")),
    (
        "aer",
        re.compile(
            rf"{_BUS}: .*(?:PCIe Bus Error|AER: (?!enabled)|aer_\w+_status|Surprise ?Down).*"
        ),
    ),
    ("aer", re.compile(rf"AER: (?!enabled).*\b{_BUS}.*")),
)
_PREFILTER = re.compile(r"Xid|[Oo]ut of memory|oom-kill|segfault|traps:|AER|aer_|PCIe Bus|Surprise")


def parse_line(text: str) -> KernelLine | None:
    """Return the report in a line of the kernel's log; None where it concerns nobody here."""
    if not _PREFILTER.search(text):
        return None
    for kind, pattern in _PATTERNS:
        found = pattern.search(text)
        if found is None:
            continue
        groups = found.groupdict()
        bus, pid, number = (groups.get(name) for name in ("bus", "pid", "number"))
        return KernelLine(
            kind=kind,
            text=text.strip(),
            bus_id=bus_id(bus) if bus else None,
            pid=int(pid) if pid else None,
            number=int(number) if number else None,
        )
    return None


def rank_of(line: KernelLine, by_bus: Mapping[str, int], by_pid: Mapping[int, int]) -> int | None:
    """Return the rank that a report concerns: by its process, else by its GPU or the port above.

    `by_bus` maps the bus ids of GPUs, and of the bridges that they hang on, to ranks.
    """
    if line.pid is not None and line.pid in by_pid:
        return by_pid[line.pid]
    return by_bus.get(line.bus_id) if line.bus_id else None


def words(line: KernelLine) -> str:
    """Return a report in words for people, with what to do where the table knows it."""
    match line.kind:
        case "xid":
            xid = explain(line.number or 0)
            return f"Xid {line.number} on GPU {line.bus_id}: {xid.meaning}; {xid.do}"
        case "sxid":
            return f"NVSwitch {line.bus_id} reports SXid {line.number}"
        case "aer":
            return f"PCIe errors at {line.bus_id}: check slot, riser and pcie_aspm=off"
        case "oom":
            return f"the kernel killed process {line.pid} for want of memory"
        case "segfault":
            return f"process {line.pid} touched memory that it may not (segmentation fault)"
