"""From the scene to the verdict."""

from __future__ import annotations

import msgspec

from panel.domain.events import Gang
from panel.domain.hang import stopped_words
from panel.domain.redact import redact
from panel.domain.verdict import Related, Status, Verdict
from panel.triage.advice import advise
from panel.triage.cause import Cause
from panel.triage.root import find_cause
from panel.triage.scene import NEVER, Scene
from panel.triage.signature import Catalog
from panel.triage.trouble import find_trouble
from panel.triage.words import evidence, headline, reason, secondary

_REFUSING = ("cli", "config")
"""Families of what ends a launch before any rank exists."""
_GPU_ONLY = "cuda-runtime"
_MOST_ALIKE = 3


def conclude(scene: Scene) -> Verdict:
    """Return the verdict on all there is."""
    gang = scene.gang
    cause = find_cause(scene)
    if gang.refused is not None and cause is None:
        return _refused(scene, gang.refused)
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
    trouble = find_trouble(scene)
    if trouble is not None:
        return _troubled(scene, trouble)
    return _plain(scene, "running", _running(scene), None, None)


def _refused(scene: Scene, told: Gang) -> Verdict:
    """Return the verdict on a launch that never had a rank: by the reason of the engine, or, where
    its first process was killed before it could give one, by that."""
    if told.code is not None and told.code < 0:
        return _plain(scene, "crashed", told.reason, "helper_died", told.t)
    return _plain(scene, "refused", told.reason, "cli_bad_combo", told.t)


def related(catalog: Catalog, kind: str) -> tuple[Related, ...]:
    """Return a kind and those that it might be taken for, each with what tells it apart."""
    others = catalog.alike(kind)[:_MOST_ALIKE]
    kinds = [kind, *others] if others else []
    return tuple(Related(kind=each, sign=sign) for each in kinds if (sign := catalog.sign(each)))


def _failed(scene: Scene, cause: Cause) -> Verdict:
    return Verdict(
        status=_status(scene, cause),
        headline=headline(scene, cause),
        cause=reason(scene, cause),
        final=scene.gang.down,
        t=round(scene.t, 3),
        t_first=round(cause.t, 3) if scene.timed or cause.deaths else None,
        kind=cause.kind,
        family=_family(scene, cause.kind),
        root_ranks=cause.roots,
        secondary=secondary(scene, cause),
        phase=cause.phase,
        confidence=cause.confidence,
        evidence=evidence(scene, cause),
        advice=advise(scene, cause),
        related=related(scene.catalog, cause.kind),
        missing=(*cause.missing, *scene.missing),
    )


def _troubled(scene: Scene, cause: Cause) -> Verdict:
    """Return the verdict on an engine that runs and answers with errors."""
    text = f"requests fail: {cause.who} {cause.what}: {cause.detail}"
    return msgspec.structs.replace(_failed(scene, cause), status="running", headline=redact(text))


def _family(scene: Scene, kind: str) -> str | None:
    """Return the family of a kind: what is filed under the GPU's runtime has another home where no
    rank uses a GPU."""
    family = scene.catalog.family(kind)
    return "process-death" if family == _GPU_ONLY and scene.device == "cpu" else family


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
        return f"nothing has failed; {stopped_words(sorted(scene.gang.stopped))} for now"
    phase = scene.phase(None)
    return f"nothing has failed{f'; last phase seen: {phase}' if phase else ''}"
