"""The steps of looking at a hang as rows: what each costs, what it found, which comes next."""

from __future__ import annotations

from panel.domain.hang import HangView, Rung, Step
from panel.widgets.glyphs import Glyphs
from panel.widgets.notice_rows import hang_words
from panel.widgets.spans import BLANK, Row, Span, Tone, clip, wrap

_INDENT = 6


def hang_rows(
    hang: HangView, world_size: int, busy: Step | None, width: int, glyphs: Glyphs
) -> list[Row]:
    """Return why a hang is suspected, and the ladder; `busy` is the step under way."""
    following = next_step(hang)
    rows = [*_suspicion(hang, world_size, width), BLANK]
    for rung in hang.rungs:
        rows += _rung(rung, width, glyphs, busy=rung.step == busy, next_=rung.step == following)
    if hang.suspicion is None or following is not None:
        return rows
    return [*rows, BLANK, (Span(" then: Esc, and x stops the gang or r launches it again"),)]


def next_step(hang: HangView) -> Step | None:
    """Return the lowest step that can be done and has not been."""
    return next((rung.step for rung in hang.rungs if not rung.done and not rung.refused), None)


def _suspicion(hang: HangView, world_size: int, width: int) -> list[Row]:
    if hang.suspicion is None:
        text = " no hang is suspected; steps 0 to 3 are safe for a healthy engine"
        return [(Span(text, Tone.DIM),)]
    lines = wrap(hang_words(hang.suspicion, world_size), width - 2)
    return [(Span(f" {line}", Tone.WARN),) for line in lines]


def _rung(rung: Rung, width: int, glyphs: Glyphs, *, busy: bool, next_: bool) -> list[Row]:
    sign, tone = Span(glyphs.off, Tone.DIM), Tone.DIM if rung.refused else Tone.BRIGHT
    if busy:
        sign = Span(glyphs.more, Tone.BUSY)
    elif rung.done:
        sign = Span(glyphs.ok, Tone.GOOD)
    elif next_:
        sign = Span(glyphs.pointer, Tone.KEY)
    title = f"{rung.step:<8}{rung.title}"
    cost = f"costs {rung.cost}" if rung.cost == "nothing" else rung.cost
    when = ", by itself" if rung.automatic else ""
    rows: list[Row] = [
        (
            Span(f" {rung.number} ", Tone.DIM if rung.refused else Tone.KEY),
            Span(f"{sign.text:<2} ", sign.tone),
            Span(clip(title, width - _INDENT, glyphs.more), tone),
        )
    ]
    if busy:
        return [*rows, _line("under way", Tone.BUSY)]
    if rung.refused:
        return [*rows, *_lines(f"not here: {rung.refused}", Tone.DIM, width)]
    if not rung.done:
        return [*rows, *_lines(f"{cost}{when}", Tone.DIM, width)]
    kept = [_line(f"kept: {rung.file}", Tone.DIM)] if rung.file else []
    return [*rows, *_lines(rung.result, Tone.PLAIN, width), *kept]


def _lines(text: str, tone: Tone, width: int) -> list[Row]:
    return [_line(line, tone) for line in wrap(text, width - _INDENT - 1)]


def _line(text: str, tone: Tone) -> Row:
    return (Span(" " * _INDENT + text, tone),)
