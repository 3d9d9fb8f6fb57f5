"""Who is to blame and for what, by the evidence that says most."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import NamedTuple

from panel.domain.verdict import Confidence
from panel.triage.mark import Mark
from panel.triage.member import Member
from panel.triage.scene import Roots


class Cause(NamedTuple):
    """A candidate for the root cause."""

    kind: str
    roots: Roots
    t: float
    """When it showed first, seconds since launch."""
    who: str
    """The subject of the headline."""
    what: str
    """Its predicate."""
    confidence: Confidence
    phase: str | None = None
    marks: tuple[Mark, ...] = ()
    """The deciding ones first."""
    deaths: tuple[Member, ...] = ()
    detail: str = ""
    """The engine's own words."""
    hung: bool = False
    suspects: tuple[int, ...] = ()
    """Ranks that may be at fault where no root can be named."""
    missing: tuple[str, ...] = ()
    """Evidence that would say more."""


def subject(roots: Roots, otherwise: str = "the engine") -> str:
    """Return roots as people name them."""
    if roots == "all":
        return "all ranks"
    if not roots:
        return otherwise
    if len(roots) == 1:
        return f"rank {roots[0]}"
    return "ranks " + ", ".join(str(rank) for rank in roots[:-1]) + f" and {roots[-1]}"


def speaker_name(mark: Mark) -> str:
    """Return who wrote a mark that no rank wrote."""
    names = {"APIServer": "the API server", "EngineCore": "EngineCore", "main": "the main process"}
    if mark.source in ("frontend", "spawner"):
        return f"the {mark.source.replace('frontend', 'front end')}"
    return names.get(mark.process, "the engine")


def first_of_each(marks: Iterable[Mark]) -> list[Mark]:
    """Return the marks without repetitions: one fault is printed by its rank, by wrappers around it
    and by every process that passes it on."""
    seen: set[tuple[object, ...]] = set()
    kept = []
    for mark in marks:
        name = mark.link.type if mark.link else ""
        key = (mark.rank, mark.kind, name, mark.text[:80])
        if key not in seen:
            seen.add(key)
            kept.append(mark)
    return kept


def alike(first: Mark, marks: Sequence[Mark], within: float) -> list[Mark]:
    """Return the marks that tell of the same trouble at about the same time."""
    return [
        mark
        for mark in marks
        if mark.signature is first.signature
        and abs(mark.t - first.t) <= within
        and (mark.signature is not None or _same_exception(mark, first))
    ]


def _same_exception(a: Mark, b: Mark) -> bool:
    return a.link is not None and b.link is not None and a.link.type == b.link.type
