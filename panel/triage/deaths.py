"""Processes that ended without being asked to, by their exits."""

from __future__ import annotations

import signal
from collections.abc import Mapping, Sequence

from panel.domain.exits import exit_words
from panel.domain.verdict import Confidence
from panel.triage.cause import Cause, subject
from panel.triage.member import Member
from panel.triage.scene import Scene

_SIGNAL_KINDS: Mapping[int, str] = {
    signal.SIGSEGV: "sigsegv",
    signal.SIGBUS: "oom_host_bus_error",
}
_CODE_KINDS: Mapping[tuple[str, int], str] = {
    ("builtin", 2): "cli_bad_combo",
    ("builtin", 12): "port_in_use",
}
"""What exit codes say where an engine documents them and keeps its word."""
_ROLE_KINDS = {"core": "engine_core_died", "frontend": "frontend_died"}
_LONE_S = 0.3


def find_death(scene: Scene) -> Cause | None:
    """Return the process that ended first without being asked to."""
    dead = [each for each in scene.deaths() if not _spoke_before(scene, each)]
    if not dead:
        return None
    first = dead[0]
    together = [each for each in scene.gang.together(first) if each in dead]
    front = next((each for each in together if each.role == "frontend"), None)
    if front is None:
        return _cause(scene, _alike(together, first))
    roles = ("victim", "root", "death", "hang")
    if any(scene.before(mark, _t(front)) for mark in scene.live(*roles)):
        # The engine ends its own tree once something is wrong: no news.
        return None
    return _cause(scene, [front])


def alone(scene: Scene, cause: Cause) -> bool:
    """Return whether the process of a cause ended ahead of all others."""
    others = [each for each in scene.gang.exits if each not in cause.deaths]
    return bool(cause.deaths) and all(
        _t(each) - cause.t >= _LONE_S for each in others if _t(each) >= cause.t
    )


def code_words(scene: Scene, code: int | None) -> str:
    """Return how a process ended, without a guess at who ended it."""
    return exit_words(code, dict(scene.codes.words)).partition(",")[0]


def code_kind(scene: Scene, code: int | None, otherwise: str) -> str:
    """Return the kind that an exit code speaks for; `otherwise` is that of a signal."""
    if code is None or code < 0:
        return _SIGNAL_KINDS.get(-(code or 0), otherwise)
    return _CODE_KINDS.get((scene.engine, code), "unknown_silent_death")


def _spoke_before(scene: Scene, member: Member) -> bool:
    """Return whether a process said as a victim why it ends, or others waited for it in vain: its
    end is news only where nothing came before it."""
    assert member.exit is not None
    code, t = member.exit.code or 0, member.exit.t
    said = [mark for mark in scene.live("victim", "hang") if scene.before(mark, t)]
    if any(mark.groups.get("rank") == str(member.rank) for mark in said):
        return True
    if code < 0 and code != -signal.SIGABRT:
        return False
    if member.rank is None:
        return bool(said) or any(scene.before(mark, t) for mark in scene.live("death"))
    return any(mark.rank == member.rank for mark in said)


def _alike(together: Sequence[Member], first: Member) -> list[Member]:
    """Return the ranks that ended at one moment in one way, else the first: a rank is more telling
    than what depends on it."""
    ranks = [each for each in together if each.rank is not None]
    if not ranks:
        return [first]
    leader = first if first in ranks else ranks[0]
    return [
        each for each in ranks if each.exit and leader.exit and each.exit.code == leader.exit.code
    ]


def _cause(scene: Scene, members: Sequence[Member]) -> Cause:
    first = members[0]
    assert first.exit is not None
    code, ranks = first.exit.code, [each.rank for each in members if each.rank is not None]
    roots = scene.blamed(ranks)
    if ranks:
        kind = code_kind(scene, code, "worker_died_silent")
    else:
        kind = _ROLE_KINDS.get(first.role, "helper_died")
        kind = _CODE_KINDS.get((scene.engine, code or 0), kind)
    cause = Cause(
        kind,
        roots,
        first.exit.t,
        subject(roots, first.label),
        code_words(scene, code),
        "medium",
        scene.phase(first.rank) if ranks else None,
        deaths=tuple(members),
    )
    return cause._replace(confidence=_confidence(scene, cause, code))


def _confidence(scene: Scene, cause: Cause, code: int | None) -> Confidence:
    if code == -signal.SIGABRT and not alone(scene, cause):
        # Watchdogs abort ranks that only waited.
        return "low"
    return "high" if code is not None and code < 0 else "medium"


def _t(member: Member) -> float:
    return member.exit.t if member.exit else 0.0
