"""Texts of victims: they never accuse their reporter, only point away from it."""

from __future__ import annotations

from collections.abc import Sequence

from panel.domain.verdict import Confidence
from panel.triage.cause import Cause, subject
from panel.triage.mark import Mark
from panel.triage.scene import Scene

_RANKING = ("nccl_watchdog", "deepep_timeout", "victim_load_barrier", "nccl_heartbeat")
"""Kinds that say more than a lost connection does."""
SETTLE_S = 2.0
"""So long after the first complaint the others may still come with theirs."""
_FEW = 4
"""One silent rank in so many is telling."""
_SILENT = ("victim_gloo", "noise_tcpstore", "wrapper")


def find_by_victims(scene: Scene) -> Cause | None:
    """Return what victims point at, None where nobody complains."""
    marks = scene.live("victim")
    if not marks:
        return None
    telling = [mark for mark in marks if mark.kind not in _SILENT]
    if telling:
        first = min(telling, key=lambda mark: _rank_of_kind(mark.kind))
        return _from_waiters(scene, first, [mark for mark in telling if mark.kind == first.kind])
    lost = [mark for mark in marks if mark.kind == "victim_gloo"]
    return _from_lost(scene, lost or marks, bool(lost))


def _rank_of_kind(kind: str) -> int:
    return _RANKING.index(kind) if kind in _RANKING else len(_RANKING)


def _from_waiters(scene: Scene, first: Mark, marks: Sequence[Mark]) -> Cause:
    reporters = {mark.rank for mark in marks if mark.rank is not None}
    roots: tuple[int, ...] = ()
    if first.kind == "nccl_watchdog":
        roots = laggards(scene, marks)
    named = {int(mark.groups["rank"]) for mark in marks if "rank" in mark.groups}
    if not roots:
        roots = tuple(sorted(named)) or silent_ranks(scene, reporters, first.t)
    signature = first.signature
    assert signature is not None
    if named:
        what = signature.what
    elif roots:
        what = "did not come where the others waited"
    else:
        what = signature.what
    return Cause(
        signature.kind, roots, first.t, subject(roots, "the ranks"), what,
        sure(roots), first.phase or scene.phase(None), tuple(marks),
        detail=first.text, hung=signature.family == "hang" or bool(named),
        suspects=tuple(sorted(scene.everyone - reporters)),
    )  # fmt: skip


def _from_lost(scene: Scene, marks: Sequence[Mark], lost: bool) -> Cause:
    reporters = {mark.rank for mark in marks if mark.rank is not None}
    roots = silent_ranks(scene, reporters, marks[0].t) if lost else ()
    return Cause(
        "unknown_silent_death" if lost else "unknown",
        roots,
        marks[0].t,
        subject(roots, "a process of the gang" if lost else "the engine"),
        "went away without a word" if lost else "failed; what its log says only passes that on",
        sure(roots),
        marks[0].phase or scene.phase(None),
        tuple(marks),
        suspects=tuple(sorted(scene.everyone - reporters)),
    )


def laggards(scene: Scene, marks: Sequence[Mark]) -> tuple[int, ...]:
    """Return the ranks whose last enqueued collective is behind those of the others."""
    last: dict[int, int] = {}
    for mark in marks:
        if mark.rank is not None and "last enqueued" in mark.lines[0].text and "seq" in mark.groups:
            last[mark.rank] = int(mark.groups["seq"])
    if not last:
        for mark in marks:
            if mark.rank is not None and "seq" in mark.groups:
                last.setdefault(mark.rank, int(mark.groups["seq"]))
    behind = min(last.values(), default=0)
    if len(set(last.values())) > 1:
        slow = tuple(sorted(rank for rank, seq in last.items() if seq == behind))
        return slow if len(slow) * 2 <= len(last) else ()
    return ()


def silent_ranks(scene: Scene, reporters: set[int], since: float) -> tuple[int, ...]:
    """Return the ranks that did not report, if so few that this means something, and if those that
    report at all have had the time to."""
    silent = scene.everyone - reporters
    if scene.timed and scene.t - since < SETTLE_S and not scene.gang.headless:
        return ()
    few = reporters and 0 < len(silent) <= max(1, scene.world // _FEW)
    return tuple(sorted(silent)) if few else ()


def sure(roots: tuple[int, ...]) -> Confidence:
    """Return how far the silence of ranks can be trusted: that of one more than that of several."""
    return "medium" if len(roots) == 1 else "low"
