"""Stacks as rows: a group a place, the odd rank first."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from itertools import groupby

from panel.domain.stacks import Stacks
from panel.probes.stacks.text import lines
from panel.widgets.glyphs import Glyphs
from panel.widgets.spans import Row, Span, Tone, wrap

FOLDED = 6
"""Innermost frames of a group that are shown until somebody unfolds it."""


def stack_rows(
    stacks: Stacks, width: int, glyphs: Glyphs, *, unfolded: bool = False, threads: bool = False
) -> list[Row]:
    """Return the groups; with `threads` every thread of every process."""
    several = sum(bool(group.ranks) for group in stacks.groups) > 1
    first = True
    troubles = {f"  {each.source}: {each.trouble}" for each in stacks.processes if each.trouble}
    counted, *texts = lines(stacks, threads)
    rows: list[Row] = [(Span(f" {counted}, {stacks.seconds:.1f} s long", Tone.DIM),)]
    for indented, run in groupby(texts, key=lambda text: text.startswith("  ")):
        if indented:
            rows += _frames(list(run), troubles, width, glyphs, whole=unfolded or threads)
            continue
        for text in run:
            odd = bool(text) and several and first
            first = first and not text
            rows += _wrapped(text, Tone.WARN if odd else Tone.BRIGHT, width)
    return rows


def _frames(
    texts: list[str], troubles: set[str], width: int, glyphs: Glyphs, *, whole: bool
) -> Iterator[Row]:
    frames = [text for text in texts if text not in troubles]
    shown = frames if whole else frames[:FOLDED]
    for text in shown:
        yield from _wrapped(text, Tone.PLAIN, width)
    if len(shown) < len(frames):
        yield (Span(f"   {glyphs.more} {len(frames) - len(shown)} more: Enter", Tone.DIM),)
    for text in texts:
        if text in troubles:
            yield from _wrapped(text, Tone.BAD, width)


def _wrapped(text: str, tone: Tone, width: int) -> Iterable[Row]:
    return [(Span(f" {line}", tone),) for line in wrap(text, width - 2) or [""]]
