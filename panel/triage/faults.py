"""Local faults: what a process says of itself that no other can have caused."""

from __future__ import annotations

import re
from collections.abc import Sequence

from panel.domain.verdict import Confidence
from panel.triage.cause import Cause, alike, first_of_each, speaker_name, subject
from panel.triage.mark import Mark
from panel.triage.scene import Roots, Scene
from panel.triage.victims import silent_ranks

_TOGETHER_S = 2.0
"""Ranks that fail alike within this time fail for one reason."""
_TOGETHER_UNTIMED_S = 120.0
"""The same where only printed times are known, which native lines do not have."""
_CLOSE_S = 2.0
"""A fault with a name this soon after one without is believed before it."""
_OUTSIDE = ("APIServer", "EngineCore", "main")
_PHASES = {"spawner": "import"}
"""What a process is there for, where it has not said a word about it."""
_NUMBER = re.compile(r"\d+")


def find_fault(scene: Scene) -> Cause | None:
    """Return the first local fault, None where there is none."""
    marks = [mark for mark in scene.live("root") if _counts(scene, mark)]
    marks = [mark for mark in first_of_each(marks) if not _kernel(mark)]
    if not marks:
        return None
    first = marks[0]
    named = [mark for mark in marks if mark.signature and mark.t <= first.t + _CLOSE_S]
    if first.signature is None and named:
        first = named[0]
    within = _TOGETHER_S if scene.timed else _TOGETHER_UNTIMED_S
    return _cause(scene, first, alike(first, marks, within))


def _kernel(mark: Mark) -> bool:
    return mark.process == "kernel"


def _counts(scene: Scene, mark: Mark) -> bool:
    """Return whether a mark tells of a failure and not of something that was survived."""
    if mark.signature is not None:
        return mark.grave
    # An exception without a name may be a request's that was refused: it counts where a rank or
    # the core had it, or where something ended for it.
    return mark.process not in ("APIServer", "main") or _followed(scene, mark)


def _followed(scene: Scene, mark: Mark) -> bool:
    ended = any(each.exit and each.exit.t >= mark.t for each in scene.deaths())
    return ended or any(other.order > mark.order for other in scene.live("victim", "death"))


def _cause(scene: Scene, first: Mark, group: Sequence[Mark]) -> Cause:
    roots = _roots(scene, first, group)
    signature = first.signature
    who = subject(roots, speaker_name(first))
    what = signature.what if signature else f"failed by {first.link.type if first.link else ''}"
    return Cause(
        first.kind,
        roots,
        first.t,
        who,
        what,
        _confidence(scene, first, roots),
        first.phase or scene.phase(first.rank) or _PHASES.get(first.source),
        tuple(group),
        detail=_detail(first),
    )


def _roots(scene: Scene, first: Mark, group: Sequence[Mark]) -> Roots:
    scope = first.signature.scope if first.signature else "rank"
    reporters = {mark.rank for mark in group if mark.rank is not None}
    if scope == "none" or (first.process in _OUTSIDE and not reporters):
        return ()
    if scope == "all":
        if first.signature and first.signature.family == "config" and not scene.has_ranks:
            return ()
        return "all" if scene.world != 1 else (0,)
    if scope == "others":
        return _others(scene, reporters, first.t)
    if scope == "named":
        named = {
            int(number)
            for mark in group
            for number in _NUMBER.findall(mark.groups.get("rank") or _ranks_in(mark))
        }
        reporters = named or reporters
    if not reporters and scene.world == 1:
        return (0,)
    return scene.blamed(reporters)


def _ranks_in(mark: Mark) -> str:
    """Return the ranks of `rank 1 and rank 0`, `rank 1 version 2.27.3 rank 0`."""
    return " ".join(re.findall(r"(?:^|rank )(\d+)", mark.groups.get("ranks", "")))


def _others(scene: Scene, reporters: set[int], since: float) -> Roots:
    """Return those that do not report: the complaint is about them."""
    used = {
        rank: gpu.mem_used or 0
        for gpu in scene.gang.gpus.values()
        if (rank := scene.gang.rank_of_gpu(gpu)) is not None
    }
    if len(used) > 1:
        return (max(used, key=lambda rank: used[rank]),)
    return silent_ranks(scene, reporters, since)


def _confidence(scene: Scene, first: Mark, roots: Roots) -> Confidence:
    signature = first.signature
    if signature is None or signature.late or signature.scope == "others":
        return "medium"
    unplaced = signature.scope == "rank" and not roots and scene.world > 1
    return "medium" if unplaced else "high"


def _detail(mark: Mark) -> str:
    return mark.link.short if mark.link else mark.groups.get("detail", mark.text)
