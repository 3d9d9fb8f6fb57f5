"""The root cause: which evidence is believed, in which order."""

from __future__ import annotations

from panel.triage.cause import Cause, subject
from panel.triage.deaths import alone, find_death
from panel.triage.explain import explain
from panel.triage.faults import find_fault
from panel.triage.hangs import find_hang, odd_ranks
from panel.triage.kernel import find_kernel
from panel.triage.member import Member
from panel.triage.scene import Scene
from panel.triage.told import find_told_death
from panel.triage.victims import find_by_victims

_SEEN_LATE_S = 2.0
"""A death may be noticed so much later than what others say about it."""
_FATAL = ("host_reset", "xid_79", "xid_gsp")
"""What the kernel says of them nothing survives."""
_NATIVE_S = 1.0
"""So soon after a native last word the process that said it is gone."""
_LOOSE = ("unknown_exception", "cuda_ima", "oom_serving", "oom_capture")
"""What follows where ranks chose different all-reduce paths in capture."""


def find_cause(scene: Scene) -> Cause | None:
    """Return who is to blame, None where nothing has failed.

    The kernel log beats all text; then local faults and deaths by time; then deaths that monitors
    report; then what victims point away from; then hangs.
    """
    fault, death = find_fault(scene), find_death(scene)
    local = _earlier(scene, fault, death)
    told = find_told_death(scene)
    if local is None or (told is not None and local is not death and told.t < local.t):
        local = told or local
    cause = local or find_by_victims(scene)
    hang = None if local else find_hang(scene)
    if hang is not None and (cause is None or hang.roots or not cause.roots):
        cause = hang
    cause = explain(scene, cause)
    return _by_kernel(scene, cause) or _by_counts(scene, cause) or cause or _weak(scene)


def _by_kernel(scene: Scene, cause: Cause | None) -> Cause | None:
    ended = next(iter(_ended(scene)), None)
    symptom = cause.t if cause else ended.exit.t if ended and ended.exit else None
    kernel = find_kernel(scene, symptom)
    if kernel is None or (cause is None and kernel.marks[0].order > scene.stop):
        return None
    if cause is None:
        return kernel if ended or kernel.kind in _FATAL else None
    # A fault of a single rank tells whose GPU it was where the address does not.
    lone = cause.roots != "all" and len(cause.roots) == 1 and not kernel.roots
    return kernel._replace(
        roots=cause.roots if lone else kernel.roots,
        who=cause.who if lone else kernel.who,
        marks=(*kernel.marks, *cause.marks),
        deaths=cause.deaths,
        phase=kernel.phase or cause.phase,
    )


def _by_counts(scene: Scene, cause: Cause | None) -> Cause | None:
    odd = odd_ranks(scene)
    if not odd or cause is None or cause.kind not in _LOOSE:
        return None
    signature = scene.catalog.of_kind("custom_ar_count")
    assert signature is not None
    return cause._replace(kind=signature.kind, roots=odd, who=subject(odd), what=signature.what)


def _earlier(scene: Scene, fault: Cause | None, death: Cause | None) -> Cause | None:
    """Return which of a fault and a death came first; one and the same process has both."""
    if fault is None or death is None:
        return fault or death
    if death.roots and fault.roots != "all" and set(death.roots) & set(fault.roots):
        return fault._replace(deaths=death.deaths)
    if death.t <= fault.t and (scene.timed or fault.kind == "unknown_exception"):
        return death
    if not fault.roots and _native(fault) and death.t - fault.t <= _NATIVE_S:
        return fault._replace(roots=death.roots, who=death.who, deaths=death.deaths)
    guess = fault.kind == "unknown_exception" and death.kind in ("worker_died_silent", "sigsegv")
    late = guess and death.t - fault.t <= _SEEN_LATE_S and alone(scene, death)
    return death if late else fault


def _native(fault: Cause) -> bool:
    """Return whether a fault was printed by something that gives no rank."""
    first = fault.marks[0]
    scope = first.signature.scope if first.signature else "rank"
    return scope == "rank" and not first.process and first.rank is None


def _ended(scene: Scene) -> list[Member]:
    """Return those that ended by an error although nobody asked."""
    return [
        each
        for each in scene.gang.unasked(())
        if each.exit and each.exit.code != 0 and each.role not in ("tracker", "spawner")
    ]


def _weak(scene: Scene) -> Cause | None:
    """Where nothing accuses anybody, the first end that nobody asked for."""
    member = next(iter(_ended(scene)), None)
    if member is None or member.exit is None:
        return None
    code = member.exit.code
    blaming = member.rank is None or code in scene.codes.victims
    roots = () if blaming or member.rank is None else (member.rank,)
    return Cause(
        "unknown_silent_death", roots, member.exit.t, member.label,
        f"ended by itself (exit code {code})", "low", deaths=(member,),
    )  # fmt: skip
