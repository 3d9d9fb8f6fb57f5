"""The first verdict on a gang that ended: who was first, how, and what its log says last."""

from __future__ import annotations

import signal
from collections.abc import Callable, Collection, Mapping
from typing import NamedTuple

from panel.domain.exits import exit_words
from panel.domain.redact import redact
from panel.domain.run import Process, Run
from panel.domain.verdict import Evidence, Status, Verdict
from panel.triage.traceback import LogLine, Trace, last_trace

_TRACE_LINES = 12
_PLAIN_LINES = 4

Lines = Callable[[str], list[LogLine]]
"""Gives the last lines of a source's log."""


class Codes(NamedTuple):
    """What an engine's exit codes mean."""

    words: Mapping[int, str]
    victims: Collection[int]
    """Codes by which a process says that another one is to blame."""


def first_death(run: Run, codes: Codes, lines: Lines, t: float) -> Verdict | None:
    """Return who failed first and how; None while nothing has ended that should not have.

    `t`: seconds since launch, the moment of the verdict. It is final once the gang is down.
    """
    if run.refused:
        return _plain(run, "refused", run.refused.reason, t, "refused")
    root = find_root(run, codes.victims)
    if root is not None:
        return _crashed(run, root, codes, lines, t)
    if run.helper_died:
        return _plain(run, "crashed", run.helper_died.reason, t, "helper_died")
    if run.failing:
        return _plain(run, "crashed", run.failing.reason, t, "process_exit")
    if not run.live:
        return _plain(run, "stopped", "stopped by the operator", t, None)
    return None


def find_root(run: Run, victims: Collection[int]) -> Process | None:
    """Return the process whose unexpected end came first, leaving out those that blame another."""
    dead = run.unexpected
    blamed = [each for each in dead if each.exited and each.exited.code not in victims]
    return next(iter(blamed or dead), None)


def _crashed(run: Run, root: Process, codes: Codes, lines: Lines, t: float) -> Verdict:
    exited = root.exited
    assert exited is not None
    log = lines(root.source)
    code = exited.code
    # A process that was killed may have a traceback of something else in its log.
    trace = None if code is None or code < 0 else last_trace(log)
    phase = None if root.rank is None else run.phase(root.rank)
    return Verdict(
        status="crashed",
        headline=_headline(root, code, trace, phase, codes.words),
        final=not run.live,
        t=round(t, 3),
        t_first=exited.t,
        kind="exception" if trace else _kind(code),
        family="process",
        root_ranks=() if root.rank is None else (root.rank,),
        secondary=_secondary(run, root),
        phase=phase,
        confidence="high" if trace or code is None or code < 0 else "medium",
        evidence=_evidence(root.source, trace, log),
        missing=() if log else (f"{root.source}.log",),
    )


def _headline(
    root: Process,
    code: int | None,
    trace: Trace | None,
    phase: str | None,
    words: Mapping[int, str],
) -> str:
    where = f" in {phase}" if phase else ""
    if trace is None:
        how, comma, hint = exit_words(code, dict(words)).partition(",")
        return f"{root.label} failed first: {how}{where}{comma}{hint}"
    said = trace.message or _assertion(trace)
    message = f": {said}" if said else ""
    return redact(f"{root.label} failed first: {trace.type}{where}{message}")


def _assertion(trace: Trace) -> str:
    """Return the source line of an exception without a message, such as that of a bare assert."""
    shown = [line.text.strip() for line in trace.lines[:-1]]
    return next((text for text in reversed(shown) if text.strip("^~ ")), "")


def _kind(code: int | None) -> str:
    if code is None or code >= 0:
        return "process_exit"
    return "killed" if -code in (signal.SIGKILL, signal.SIGTERM, signal.SIGINT) else "fatal_signal"


def _secondary(run: Run, root: Process) -> dict[str, str]:
    labels = {}
    for pid in run.deaths:
        process = run.processes[pid]
        name = process.source if process.rank is None else str(process.rank)
        if process.signalled:
            labels[name] = "killed_by_gang_stop"
        elif not process.expected and process is not root:
            labels[name] = "victim"
    return labels


def _evidence(source: str, trace: Trace | None, log: list[LogLine]) -> tuple[Evidence, ...]:
    chosen = trace.lines[-_TRACE_LINES:] if trace else log[-_PLAIN_LINES:]
    return tuple(
        Evidence(source=source, offset=line.offset, line=line.number, text=redact(line.text))
        for line in chosen
    )


def _plain(run: Run, status: Status, headline: str, t: float, kind: str | None) -> Verdict:
    return Verdict(
        status=status,
        headline=redact(headline),
        final=not run.live,
        t=round(t, 3),
        kind=kind,
        confidence="high",
    )
