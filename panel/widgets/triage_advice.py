"""What to do about a verdict, and what differs from the last good launch. Pure."""

from __future__ import annotations

from panel.domain.plan import Change
from panel.domain.verdict import Advice, Verdict
from panel.widgets.advice_words import advice_words, kind_of
from panel.widgets.findings import Findings
from panel.widgets.glyphs import Glyphs
from panel.widgets.spans import Row, Span, Tone, clip, wrap


def applicable(verdict: Verdict) -> list[Advice]:
    """Return the advice that changes flags."""
    return [advice for advice in verdict.advice if advice.change]


def advice_rows(
    verdict: Verdict, findings: Findings, chosen: int, width: int, glyphs: Glyphs
) -> list[Row]:
    """Return the section; `chosen`: which of the applicable advice has the pointer."""
    changing = applicable(verdict)
    pointed = changing[chosen % len(changing)] if changing else None
    rows = [
        row
        for advice in verdict.advice
        for row in _advice(advice, width, glyphs, chosen=advice is pointed)
    ]
    rows += _since(findings, width, glyphs)
    title = "do" if verdict.advice else "what differs"
    return [glyphs.rule((Span(title, Tone.BRIGHT),), width), *rows] if rows else []


def _advice(advice: Advice, width: int, glyphs: Glyphs, *, chosen: bool) -> list[Row]:
    """Return what to try; the one that a key applies has the pointer."""
    said = dict.fromkeys((advice_words(advice), advice.why if advice.confirm else ""))
    first, *rest = wrap(": ".join(filter(None, said)), width - 13) or [""]
    return [
        (
            Span(f" {glyphs.pointer if chosen else ' '} ", Tone.KEY),
            Span(f"{kind_of(advice):<9}", Tone.DIM),
            Span(first, Tone.BRIGHT if chosen else Tone.PLAIN),
        ),
        *((Span(f"{'':12}{line}"),) for line in rest),
    ]


def _since(findings: Findings, width: int, glyphs: Glyphs) -> list[Row]:
    if findings.good is None:
        return []
    named = f"   since #{findings.good.id} (good)  "
    if not findings.differences:
        return [(Span(named, Tone.DIM), Span("same flags, versions and environment"))]
    return [
        (
            Span(" " * len(named) if index else named, Tone.DIM),
            *_change(change, width - len(named), glyphs),
        )
        for index, change in enumerate(findings.differences)
    ]


def _change(change: Change, width: int, glyphs: Glyphs) -> Row:
    before = "not set" if change.before is None else change.before
    after = "not set" if change.after is None else change.after
    room = max((width - len(change.name) - 4) // 2, 8)
    return (
        Span(f"{change.name} "),
        Span(f"{clip(before, room, glyphs.more)} {glyphs.arrow} ", Tone.DIM),
        Span(clip(after, room, glyphs.more), Tone.BRIGHT),
    )
