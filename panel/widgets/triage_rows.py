"""A verdict as rows: who failed, when each process ended, the evidence, what to do."""

from __future__ import annotations

from panel.domain.snapshot import LaunchView, ProcessView
from panel.domain.verdict import Advice, Verdict
from panel.widgets.glyphs import Glyphs
from panel.widgets.spans import BLANK, Row, Span, Tone, cells, clip, fit, wrap
from panel.widgets.words import span_of

_LANE = 24


def verdict(launch: LaunchView, found: Verdict, width: int, glyphs: Glyphs) -> list[Row]:
    """Return the whole screen."""
    lines = wrap(found.headline, width - 4)
    rows: list[Row] = [BLANK, (Span(" "), glyphs.bad, Span(f" {lines[0]}", Tone.BAD))]
    rows += [(Span(f"   {line}", Tone.BAD),) for line in lines[1:]]
    kind = " · ".join(word for word in (found.family, found.kind, found.phase) if word)
    rows.append((Span(f"   {kind or found.status}", Tone.PLAIN), Span("   confidence ", Tone.DIM),
                 Span(found.confidence)))  # fmt: skip
    ended = [process for process in launch.processes if process.exit is not None]
    if ended:
        rows += [BLANK, glyphs.rule((Span("who and when", Tone.BRIGHT),), width)]
        rows += _lanes(ended, found, width, glyphs)
    if found.evidence:
        rows += [BLANK, glyphs.rule((Span("evidence", Tone.BRIGHT),), width)]
        for line in found.evidence:
            where = Span(f" {fit(f'{line.source}:{line.line}', 16, glyphs.more)} ", Tone.DIM)
            rows.append((where, Span(clip(line.text, width - 19, glyphs.more))))
    if found.advice:
        rows += [BLANK, glyphs.rule((Span("do", Tone.BRIGHT),), width)]
        for advice in found.advice:
            rows += _advice(advice, width, glyphs)
    if found.missing:
        rows += [BLANK, (Span(f" not available: {', '.join(found.missing)}", Tone.DIM),)]
    return rows


def _lanes(ended: list[ProcessView], found: Verdict, width: int, glyphs: Glyphs) -> list[Row]:
    """Return a lane a process, all on one scale that spans the deaths."""
    times = [process.exit.t for process in ended if process.exit]
    first, last = min(times), max(times)
    scale = (_LANE - 1) / (last - first) if last > first else 0.0
    return [_lane(p, found, first, scale, width, glyphs) for p in sorted(ended, key=_end)]


def _end(process: ProcessView) -> float:
    return process.exit.t if process.exit else 0.0


def _lane(
    process: ProcessView, found: Verdict, first: float, scale: float, width: int, glyphs: Glyphs
) -> Row:
    after = _end(process) - first
    at = round(after * scale)
    key = str(process.rank) if process.rank is not None else process.source
    label = found.secondary.get(key, "")
    sign = glyphs.process(process.state)
    if label:
        sign = Span(sign.text, Tone.DIM)
    row = (
        Span(f" {fit(process.source, 10, glyphs.more)}"),
        Span(glyphs.blocks[0] * at, Tone.DIM),
        sign,
        Span(" " * (_LANE - at - 1)),
        Span(f"{f'+{span_of(after)}':>8}  ", Tone.DIM if after else Tone.BRIGHT),
    )
    words = process.exit.words if process.exit else ""
    text = clip(f"{label.replace('_', ' ')}  {words}".strip(), width - cells(row), glyphs.more)
    return (*row, Span(text, sign.tone))


def _advice(advice: Advice, width: int, glyphs: Glyphs) -> list[Row]:
    what = " ".join(f"{name}={value}" for name, value in advice.change.items())
    text = ": ".join(part for part in (advice.confirm, what, advice.why) if part)
    first, *rest = wrap(text, width - 5)
    return [
        (Span(f" {glyphs.pointer} ", Tone.KEY), Span(first)),
        *((Span(f"   {line}"),) for line in rest),
    ]
