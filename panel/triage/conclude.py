"""From the scene to the verdict."""

from __future__ import annotations

from panel.domain.redact import redact
from panel.domain.verdict import Status, Verdict
from panel.triage.advice import advise
from panel.triage.cause import Cause
from panel.triage.root import find_cause
from panel.triage.scene import NEVER, Scene
from panel.triage.words import evidence, headline, reason, secondary

_REFUSING = ("cli", "config")
"""Families of what ends a launch before any rank exists."""


def conclude(scene: Scene) -> Verdict:
    """Return the verdict on all there is."""
    gang = scene.gang
    if gang.refused is not None:
        return _plain(scene, "refused", gang.refused.reason, "cli_bad_combo", gang.refused.t)
    cause = find_cause(scene)
    if cause is not None:
        return _failed(scene, cause)
    if gang.keeper_lost is not None:
        rebooted = gang.keeper_lost.reason.startswith("the host was restarted")
        kind = "host_reset" if rebooted else "helper_died"
        status: Status = "host_down" if rebooted else "crashed"
        return _plain(scene, status, gang.keeper_lost.reason, kind, gang.keeper_lost.t)
    if scene.stop != NEVER:
        return _plain(scene, "stopped", "stopped by the operator", "operator_stop", None)
    if gang.down:
        return _plain(
            scene, "stopped", "ended without any sign of a failure", "operator_stop", None
        )
    return _plain(scene, "running", _running(scene), None, None)


def _failed(scene: Scene, cause: Cause) -> Verdict:
    return Verdict(
        status=_status(scene, cause),
        headline=headline(scene, cause),
        cause=reason(scene, cause),
        final=scene.gang.down,
        t=round(scene.t, 3),
        t_first=round(cause.t, 3) if scene.timed or cause.deaths else None,
        kind=cause.kind,
        family=scene.catalog.family(cause.kind),
        root_ranks=cause.roots,
        secondary=secondary(scene, cause),
        phase=cause.phase,
        confidence=cause.confidence,
        evidence=evidence(scene, cause),
        advice=advise(scene, cause),
        missing=scene.missing,
    )


def _status(scene: Scene, cause: Cause) -> Status:
    if cause.kind == "host_reset":
        return "host_down"
    flags = scene.catalog.family(cause.kind) in _REFUSING or cause.kind == "port_in_use"
    if flags and not scene.has_ranks:
        return "refused"
    return "hung" if cause.hung else "crashed"


def _plain(scene: Scene, status: Status, text: str, kind: str | None, t: float | None) -> Verdict:
    return Verdict(
        status=status,
        headline=redact(text),
        final=scene.gang.down,
        t=round(scene.t, 3),
        t_first=t,
        kind=kind,
        family=scene.catalog.family(kind) if kind else None,
        secondary=_stops(scene),
        confidence="high" if status != "running" else "medium",
        missing=scene.missing,
    )


def _stops(scene: Scene) -> dict[str, str]:
    return {
        member.source if member.rank is None else str(member.rank): "killed_by_gang_stop"
        for member in scene.gang.exits
        if member.asked and member.role not in ("tracker", "spawner")
    }


def _running(scene: Scene) -> str:
    if scene.gang.stopped:
        ranks = ", ".join(str(rank) for rank in sorted(scene.gang.stopped))
        return f"nothing has failed; rank {ranks} is stopped (state T) for now"
    phase = scene.phase(None)
    return f"nothing has failed{f'; last phase seen: {phase}' if phase else ''}"
