"""A verdict as rows: who failed and why, when the others did, what to do. Pure."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import zip_longest
from typing import NamedTuple

from panel.domain.snapshot import LaunchView
from panel.domain.states import ProcessState
from panel.domain.verdict import Verdict
from panel.logs.records import Level, Record
from panel.widgets.findings import Findings, spot_of
from panel.widgets.glyphs import Glyphs
from panel.widgets.spans import BLANK, Row, Span, Tone, cells, clip, spread, wrap
from panel.widgets.triage_advice import advice_rows
from panel.widgets.triage_alike import alike_rows
from panel.widgets.triage_lanes import lane_rows, lanes_of
from panel.widgets.triage_notes import note_rows
from panel.widgets.triage_trace import trace_rows, trace_title
from panel.widgets.words import stamp

_WIDE = 160
"""From this width on the logs stand beside the lanes."""
_TALL = 32
"""From this height on there is room for blank lines, source and more of the log."""
_TONES = {Level.WARNING: Tone.WARN, Level.ERROR: Tone.BAD}


class Case(NamedTuple):
    """What is triaged."""

    launch: LaunchView
    verdict: Verdict
    findings: Findings


class Look(NamedTuple):
    """How the operator looks at it."""

    width: int
    height: int
    glyphs: Glyphs
    unfolded: bool = False
    chosen: int = 0
    """Which of the advice that changes flags."""


def page(case: Case, look: Look) -> list[Row]:
    """Return the whole screen."""
    if look.width < _WIDE:
        parts = [
            _head(case.verdict, look),
            _when(case, look),
            _trace(case, look),
            _do(case, look),
            _notes(case, look),
            _alike(case, look),
            _log(case, look),
            _missing(case.verdict, look),
        ]
        return _stack(parts, look.height >= _TALL)
    half = look._replace(width=look.width // 2)
    left = [
        _when(case, half),
        _do(case, half),
        _notes(case, half),
        _alike(case, half),
        _missing(case.verdict, half),
    ]
    logs = [_trace(case, half), _log(case, half)]
    return [
        *_stack([_head(case.verdict, look)], True),
        *_beside(_stack(left, True), _stack(logs, True), half.width),
    ]


def _stack(parts: Sequence[list[Row]], roomy: bool) -> list[Row]:
    rows: list[Row] = []
    for part in parts:
        if part:
            rows += [*([BLANK] if roomy else []), *part]
    return rows


def _beside(left: list[Row], right: list[Row], width: int) -> list[Row]:
    return [
        (*one, Span(" " * (width - cells(one))), *other)
        for one, other in zip_longest(left, right, fillvalue=BLANK)
    ]


def _head(verdict: Verdict, look: Look) -> list[Row]:
    hung = verdict.status == "hung"
    sign = look.glyphs.process(ProcessState.STALE if hung else ProcessState.FAILED)
    first, *rest = wrap(verdict.headline, look.width - 4) or [""]
    rows: list[Row] = [(Span(" "), sign, Span(f" {first}", sign.tone))]
    rows += [(Span(f"   {line}", sign.tone),) for line in rest]
    kind = " · ".join(word for word in (verdict.family, verdict.kind, verdict.phase) if word)
    sure = (Span("confidence ", Tone.DIM), Span(f"{verdict.confidence} "))
    rows.append(spread((Span(f"   {kind or verdict.status}"),), sure, look.width))
    for index, line in enumerate(wrap(verdict.cause, look.width - 11)):
        rows.append((Span(" " * 10 if index else "   cause  ", Tone.DIM), Span(line)))
    return rows


def _when(case: Case, look: Look) -> list[Row]:
    lanes = lanes_of(case.launch, case.verdict, case.findings.tails)
    if not lanes.lanes:
        return []
    took = Span(f"{lanes.last - lanes.begin:.2f}s from first to last", Tone.DIM)
    title = look.glyphs.rule((Span("who and when", Tone.BRIGHT),), look.width, (took,))
    return [title, *lane_rows(lanes, look.width, look.glyphs)]


def _trace(case: Case, look: Look) -> list[Row]:
    link, spot = case.findings.trace, spot_of(case.launch, case.verdict)
    if link is None or spot is None:
        return []
    records = case.findings.around
    ranks = [one.rank for one in records if one.offset == spot.offset and one.rank is not None]
    who = f"rank {ranks[0]}" if ranks else spot.source
    code = case.findings.code if look.unfolded or look.height >= _TALL else {}
    return [
        look.glyphs.rule(trace_title(who, link, unfolded=look.unfolded), look.width),
        *trace_rows(link, code, look.width, look.glyphs, unfolded=look.unfolded),
    ]


def _do(case: Case, look: Look) -> list[Row]:
    return advice_rows(case.verdict, case.findings, look.chosen, look.width, look.glyphs)


def _notes(case: Case, look: Look) -> list[Row]:
    return note_rows(case.findings.notes, look.width, look.glyphs)


def _alike(case: Case, look: Look) -> list[Row]:
    return alike_rows(case.verdict, look.width, look.glyphs)


def _log(case: Case, look: Look) -> list[Row]:
    """Return the log around the spot; of a traceback that is shown already, its last line."""
    spot, trace = spot_of(case.launch, case.verdict), case.findings.trace
    if spot is None or not case.findings.around:
        return []
    lines = trace.lines if trace else ()
    told = {line.offset for line in lines[:-1]}
    mark = lines[-1].offset if lines else spot.offset
    shown = [record for record in case.findings.around if record.offset not in told]
    at = sum(record.offset <= mark for record in shown)
    reach = look.height // 3
    title = (Span(f"log of {spot.source} ", Tone.BRIGHT), Span("(", Tone.DIM), Span("o", Tone.KEY))
    return [
        look.glyphs.rule((*title, Span(" opens it here)", Tone.DIM)), look.width),
        *(
            _record(record, look, here=record.offset == mark)
            for record in shown[max(at - reach, 0) : at + reach]
        ),
    ]


def _record(record: Record, look: Look, *, here: bool) -> Row:
    plain = Tone.BRIGHT if here else Tone.PLAIN
    text = clip(record.text, look.width - 12, look.glyphs.more)
    return (
        Span(look.glyphs.pointer if here else " ", Tone.KEY),
        Span(f"{stamp(record.t)}  ", Tone.DIM),
        Span(text, _TONES.get(record.level, plain)),
    )


def _missing(verdict: Verdict, look: Look) -> list[Row]:
    if not verdict.missing:
        return []
    text = f"not available: {', '.join(verdict.missing)}"
    return [(Span(f" {line}", Tone.DIM),) for line in wrap(text, look.width - 1)]
