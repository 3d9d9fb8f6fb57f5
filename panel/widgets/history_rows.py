"""The ledger as rows: a line a launch, and one launch in full."""

from __future__ import annotations

from panel.domain.plan import changes
from panel.domain.wire import LaunchRecord
from panel.widgets.glyphs import Glyphs
from panel.widgets.spans import BLANK, Row, Span, Tone, cells, clip, clipped, fit
from panel.widgets.words import span_of

HEAD: Row = (
    Span(
        f"    {'#':>4}  {'profile':<14}{'ready':>7} {'tok/s':>6}  what differed, and how it ended",
        Tone.DIM,
    ),
)


def record(one: LaunchRecord, before: LaunchRecord | None, width: int, glyphs: Glyphs) -> Row:
    """Return the line of a launch."""
    ready = span_of(one.ready_s) if one.ready_s is not None else "-"
    speed = f"{one.tok_s:.0f}" if one.tok_s is not None else "-"
    sign = glyphs.launch(one.state)
    row = (
        Span(" "),
        sign,
        Span(f"  {one.id:>4}  "),
        Span(fit(one.request.profile, 14, glyphs.more)),
        Span(f"{ready:>7} {speed:>6}  ", Tone.PLAIN if one.ready_s is not None else Tone.DIM),
        Span(
            clip(_differed(one, before, glyphs), max((width - 42) // 2, 12), glyphs.more),
            Tone.BRIGHT,
        ),
        Span("  "),
    )
    outcome = one.outcome or one.state.value
    tone = sign.tone if one.state.failed else Tone.DIM
    return (*row, Span(clip(outcome, width - cells(row) - 1, glyphs.more), tone))


def _differed(one: LaunchRecord, before: LaunchRecord | None, glyphs: Glyphs) -> str:
    if before is None:
        return "first"
    found = changes(before.flags, one.flags)
    words = (f"{c.name}={c.after}" if c.after is not None else f"no {c.name}" for c in found)
    return ", ".join(words) or "same"


def details(
    one: LaunchRecord, before: LaunchRecord | None, width: int, glyphs: Glyphs
) -> list[Row]:
    """Return one launch in full: outcome, difference to the launch before, flags, phases."""
    rows: list[Row] = []
    if one.outcome:
        rows += [
            BLANK,
            (Span(" "), glyphs.launch(one.state), Span(f" {one.outcome}")),
        ]
    if before is not None:
        rows += [BLANK, glyphs.rule((Span(f"against #{before.id}", Tone.BRIGHT),), width)]
        found = changes(before.flags, one.flags)
        rows += [
            (
                Span(f" {fit(change.name, 30, glyphs.more)} "),
                Span(f"{change.before or 'not passed'} ", Tone.DIM),
                Span(f"{glyphs.arrow} ", Tone.DIM),
                Span(change.after or "not passed", Tone.BRIGHT),
            )
            for change in found
        ] or [(Span(" the same flags", Tone.DIM),)]
    rows += [BLANK, glyphs.rule((Span("flags", Tone.BRIGHT),), width)]
    rows += [_pair(name, text, glyphs) for name, text in one.flags.items()]
    if one.phases:
        rows += [
            BLANK,
            glyphs.rule((Span("seconds in each phase, slowest rank", Tone.BRIGHT),), width),
        ]
        rows += [_pair(phase, f"{seconds:.2f}", glyphs) for phase, seconds in one.phases.items()]
    if one.versions:
        rows += [BLANK, glyphs.rule((Span("versions", Tone.BRIGHT),), width)]
        rows += [_pair(name, text, glyphs) for name, text in one.versions.items()]
    return [clipped(row, width, glyphs.more) for row in rows]


def _pair(name: str, text: str, glyphs: Glyphs) -> Row:
    return (Span(f" {fit(name, 30, glyphs.more)} ", Tone.DIM), Span(text))
