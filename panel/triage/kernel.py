"""The kernel log, which beats all that engines say: it knows which GPU and which process."""

from __future__ import annotations

import re

from panel.triage.cause import Cause, subject
from panel.triage.gang import normal_bus
from panel.triage.mark import Mark
from panel.triage.scene import Scene

_BEFORE_S, _AFTER_S = 120.0, 10.0
"""Around the first symptom: what lies outside has another story."""
_BUS = re.compile(r"PCI:([0-9a-fA-F:.]+)\)")


def find_kernel(scene: Scene, symptom: float | None) -> Cause | None:
    """Return what the kernel log says in the time of the first symptom."""
    for mark in scene.marks:
        if mark.process != "kernel" or mark.signature is None or mark.signature.role != "root":
            continue
        pid = int(mark.groups["pid"]) if mark.groups.get("pid") else None
        if not _near(mark, symptom) or (mark.kind == "oom_killer_host" and _stranger(scene, pid)):
            continue
        return _cause(scene, mark, pid, symptom)
    return None


def _near(mark: Mark, symptom: float | None) -> bool:
    """Return whether a line is of the time in question; one without a time may be."""
    if symptom is None or not mark.t:
        return True
    return symptom - _BEFORE_S <= mark.t <= symptom + _AFTER_S


def _cause(scene: Scene, mark: Mark, pid: int | None, symptom: float | None) -> Cause:
    signature = mark.signature
    assert signature is not None
    rank = _rank_of(scene, mark, pid)
    roots = () if rank is None else (rank,)
    member = None if pid is None else scene.gang.members.get(pid)
    bus = _bus(mark)
    otherwise = member.label if member else f"a rank on GPU {bus}" if bus else "a process"
    host = signature.scope == "none"
    return Cause(
        signature.kind,
        roots,
        mark.t if symptom is None else symptom,
        "the host" if host else subject(roots, otherwise),
        signature.what,
        "high" if roots or host or member else "medium",
        scene.phase(rank),
        (mark,),
        detail=mark.text,
    )


def _stranger(scene: Scene, pid: int | None) -> bool:
    known = scene.gang.members
    return bool(known) and pid is not None and pid not in known


def _rank_of(scene: Scene, mark: Mark, pid: int | None) -> int | None:
    if mark.rank is not None:
        return mark.rank
    if pid is not None and pid in scene.pids:
        return scene.pids[pid]
    bus = _bus(mark)
    if not bus:
        return None
    told = scene.buses.get(normal_bus(bus))
    return scene.gang.rank_of_bus(bus) if told is None else told


def _bus(mark: Mark) -> str:
    match = _BUS.search(mark.text)
    return mark.groups.get("bus") or (match[1] if match else "")
