"""Gangs that live and do not move."""

from __future__ import annotations

import re

from panel.probes.hang.look import Standing, laggards
from panel.probes.hang.suspect import patience
from panel.triage.cause import Cause, subject
from panel.triage.mark import Mark
from panel.triage.scene import NEVER, Beat, Scene
from panel.triage.victims import silent_ranks, sure

STOPPED_S = 30.0
"""In state T for so long without any other sign: debuggers stop a process for less."""
STALE_S = 20.0
"""A rank of ours whose heartbeat is older, in a phase that beats, is stuck."""
_QUIET_S = {"dist_init": 120.0}
_QUIET_ELSE_S = 1800.0
"""Captures and loads of twenty minutes are healthy; then they move, though."""
_CAPTURE_QUIET_S = 60.0
_FIRST_COLLECTIVE = re.compile(r"is using nccl==|Init COMPLETE")


def find_hang(scene: Scene) -> Cause | None:
    """Return what holds up a gang of which nothing has ended."""
    signs = _signs(scene)
    asked = scene.stop[0]
    stopped = {
        rank: since
        for rank, since in scene.gang.stopped.items()
        if since < asked
        and (
            min(scene.lived(rank), asked) - since >= STOPPED_S
            or any(mark.t >= since for mark in signs)
            or _stale(scene)
        )
    }
    if stopped:
        ranks = tuple(sorted(stopped))
        return Cause(
            "rank_stopped", ranks, min(stopped.values()), subject(ranks),
            "is stopped (state T) and holds up the others" if len(ranks) == 1
            else "are stopped (state T) and hold up the others",
            "high", scene.phase(ranks[0]), tuple(signs), hung=True,
        )  # fmt: skip
    if scene.stop != NEVER:
        return _by_marks(scene, signs)
    return _by_marks(scene, signs) or _by_beats(scene) or _by_ledger(scene) or _by_silence(scene)


def odd_ranks(scene: Scene) -> tuple[int, ...]:
    """Return the ranks that registered fewer graph addresses than the others in capture."""
    counts: dict[int, int] = {}
    for mark in scene.marks:
        if mark.kind == "custom_ar_count" and mark.rank is not None:
            counts[mark.rank] = int(mark.groups["count"])
    if len(set(counts.values())) < 2:
        return ()
    values = list(counts.values())
    usual = max(set(values), key=values.count)
    return tuple(sorted(rank for rank, count in counts.items() if count != usual))


def _signs(scene: Scene) -> list[Mark]:
    recovered = max(
        (each.t for each in scene.gang.health.values() if each.code == 200), default=-1.0
    )
    return [
        mark
        for mark in scene.live("hang")
        if mark.kind not in ("custom_ar_count", "capture_error_hidden")
        and not (mark.kind == "health_timeout" and mark.t < recovered)
    ]


def _by_marks(scene: Scene, signs: list[Mark]) -> Cause | None:
    hidden = [mark for mark in scene.live("hang") if mark.kind == "capture_error_hidden"]
    if hidden and (not scene.timed or scene.t - scene.last_byte >= _CAPTURE_QUIET_S):
        return _of(scene, hidden, ())
    if not signs:
        return None
    order = ("hang_rpc", "hang_watchdog", "health_timeout")
    kind = min((mark.kind for mark in signs), key=order.index)
    marks = [mark for mark in signs if mark.kind == kind]
    reporters = {mark.rank for mark in marks if mark.rank is not None}
    telling = kind == "hang_watchdog"
    return _of(scene, marks, silent_ranks(scene, reporters, marks[0].t) if telling else ())


def _of(scene: Scene, marks: list[Mark], roots: tuple[int, ...]) -> Cause:
    signature = marks[0].signature
    assert signature is not None
    what = "stopped moving without a word, while the others wait" if roots else signature.what
    return Cause(
        signature.kind, roots, marks[0].t, subject(roots), what, sure(roots),
        marks[0].phase or scene.phase(None), tuple(marks), hung=True,
    )  # fmt: skip


def _by_beats(scene: Scene) -> Cause | None:
    stale = _stale(scene)
    if not stale:
        return None
    late = laggards([Standing(beat.rank, beat.meetings, beat.waiting) for beat in stale])
    behind = min(beat.step for beat in stale)
    slow = tuple(beat.rank for beat in stale if beat.step == behind)
    roots = late or (slow if len(slow) < len(scene.beats) else ())
    oldest = max(beat.age for beat in stale)
    what = f"made no step for {oldest:.0f} s" + (" while the others wait" if roots else "")
    return Cause(
        "unknown_hang", roots, scene.t - oldest, subject(roots, "the gang"), what,
        "high" if late else sure(roots), "serving", hung=True,
    )  # fmt: skip


def _stale(scene: Scene) -> list[Beat]:
    return [beat for beat in scene.beats if beat.age >= STALE_S and beat.phase == "serving"]


def _by_ledger(scene: Scene) -> Cause | None:
    """A start in which the others wait for ranks that stand still for longer than their phase may
    take."""
    standings = [Standing(beat.rank, beat.meetings, beat.waiting) for beat in scene.beats]
    late = laggards(standings)
    behind = [beat for beat in scene.beats if beat.rank in late]
    if not behind or any(
        beat.phase == "serving" or beat.age < patience(beat.phase) for beat in behind
    ):
        return None
    oldest = max(beat.age for beat in behind)
    return Cause(
        "unknown_hang", late, scene.t - oldest, subject(late),
        f"let{'s' if len(late) == 1 else ''} the others wait, without a move for {oldest:.0f} s",
        "medium", behind[0].phase, hung=True,
    )  # fmt: skip


def _by_silence(scene: Scene) -> Cause | None:
    """A boot that says nothing any more; where no times are known, one whose log ends in front of
    the first collective."""
    phase = scene.phase(None)
    if scene.serving or scene.gang.down or phase in (None, "args", "serving"):
        return None
    quiet = scene.t - scene.last_byte
    ends = _FIRST_COLLECTIVE.search(scene.last_line) is not None
    if scene.timed and quiet < _QUIET_S.get(phase or "", _QUIET_ELSE_S):
        return None
    if not scene.timed and not ends:
        return None
    kind = "nccl_p2p_hang" if phase == "dist_init" else "unknown_hang"
    signature = scene.catalog.of_kind(kind)
    what = signature.what if signature and kind == "nccl_p2p_hang" else "has said nothing for long"
    return Cause(
        kind, (), scene.last_byte, "the launch", what, "low", phase, detail=scene.last_line,
        hung=True,
    )  # fmt: skip
