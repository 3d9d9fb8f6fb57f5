"""A cause in words: the headline, the labels of the others, the lines that speak for it."""

from __future__ import annotations

from panel.domain.redact import redact
from panel.domain.verdict import Evidence
from panel.triage.cause import Cause
from panel.triage.scene import Scene
from panel.triage.trace import LogLine

_DETAIL_CHARS = 200
_EVIDENCE_CHARS = 2000
_EVIDENCE_LINES = 12
_LAST_LINES = 4
_SHARED = ("engine",)
"""Logs that all processes of a gang write to."""


def headline(scene: Scene, cause: Cause) -> str:
    """Return one sentence: who failed first, how, in which phase, in which words of the engine."""
    where = f" in {cause.phase}" if cause.phase else ""
    first = " failed first" if cause.roots and cause.roots != "all" and not cause.hung else ""
    said = " ".join(cause.detail.split())[:_DETAIL_CHARS]
    if cause.kind != "unknown_exception":
        # What engines advise after their first sentence is as often wrong as right.
        said = said.partition(". ")[0]
    exception = next((mark.link for mark in cause.marks if mark.link), None)
    if cause.kind == "unknown_exception" and exception is not None:
        verb = " failed first" if cause.roots and cause.roots != "all" else " failed"
        text = f"{cause.who}{verb}: {exception.type}{where}"
    elif cause.hung:
        text = f"{cause.who} {cause.what}{where}"
    elif first:
        text = f"{cause.who}{first}: {cause.what}{_once(cause.what, where)}"
    else:
        text = f"{cause.who}: {cause.what}{_once(cause.what, where)}"
    return redact(f"{text}: {said}" if said and said not in text else text)


def _once(what: str, where: str) -> str:
    """Leave out the phase where the words name it already."""
    return "" if where.removeprefix(" in ") in what.split() else where


def reason(scene: Scene, cause: Cause) -> str:
    """Return why such a thing happens, as the signatures tell it, and where a dump says it did."""
    own = (mark.signature for mark in cause.marks if mark.kind == cause.kind)
    texts = (each.cause for each in (*own, scene.catalog.of_kind(cause.kind)) if each)
    text = next(filter(None, texts), "")
    frames = dict.fromkeys(mark.groups.get("frame", "") for mark in cause.marks)
    frame = next(filter(None, frames), "")
    return f"{text}; Python stood at {frame}" if frame else text


def secondary(scene: Scene, cause: Cause) -> dict[str, str]:
    """Return what became of the others: rank or process → label."""
    roots = scene.everyone if cause.roots == "all" else set(cause.roots)
    labels: dict[str, str] = {}
    for mark in scene.marks:
        role = mark.signature.role if mark.signature else "root"
        if mark.rank is not None and mark.rank not in roots and role == "victim":
            labels.setdefault(str(mark.rank), _victim(mark.kind))
    for rank in cause.suspects:
        if rank not in roots:
            labels.setdefault(str(rank), "silent")
    dead = {id(each) for each in cause.deaths}
    for member in scene.gang.exits:
        if id(member) in dead or member.role in ("tracker", "spawner") or member.rank in roots:
            continue
        name = member.source if member.rank is None else str(member.rank)
        if member.rank is None and member.title:
            name = member.title.rpartition("::")[2]
        if member.asked:
            labels.setdefault(name, "killed_by_gang_stop")
        else:
            labels.setdefault(name, "victim")
    return labels


def _victim(kind: str) -> str:
    names = {"victim_gloo": "victim_gloo", "nccl_watchdog": "victim_nccl", "wrapper": "wrapper"}
    return names.get(kind, "victim")


def evidence(scene: Scene, cause: Cause) -> tuple[Evidence, ...]:
    """Return the lines that decide, the most telling first, secrets masked."""
    chosen = [_evidence(mark.source, line) for mark in cause.marks for line in mark.lines]
    for member in cause.deaths:
        assert member.exit is not None
        text = f"{member.label} (pid {member.pid}) exit {member.exit.code}"
        said = f"t {member.exit.t:.3f}: {text}"
        chosen.append(Evidence(source="events", offset=0, line=member.place + 1, text=said))
        # What it said last is its own only where it has a log of its own.
        if not cause.marks and member.source not in _SHARED:
            tail = scene.tails.get(member.source, ())
            chosen += [_evidence(member.source, line) for line in tail[-_LAST_LINES:]]
    return tuple(dict.fromkeys(each for each in chosen if each.text.strip(" ^~")))[:_EVIDENCE_LINES]


def _evidence(source: str, line: LogLine) -> Evidence:
    text = redact(line.text.strip("\r\n")[:_EVIDENCE_CHARS])
    return Evidence(source=source, offset=line.offset, line=line.number, text=text)
