"""The charts of the node screen: what the engine did in the last ten minutes."""

from __future__ import annotations

import math
from typing import NamedTuple

from panel.domain.series import Series
from panel.widgets.chart import Line, dots, draw
from panel.widgets.glyphs import Glyphs
from panel.widgets.spans import Row, Span, Tone, cells, clip
from panel.widgets.timeline import Values, newest, pool
from panel.widgets.words import count

PREFIX = "engine."
SECONDS = 600
_ACROSS = 3
_GAP = 2
_AXIS = 6
_LEAST = (100, 36)
"""A smaller screen is for table and log."""
_STEPS = (1, 2, 5, 10)


class Curve(NamedTuple):
    """One line of a chart."""

    label: str
    name: str
    """In the series."""
    tone: Tone


class Panel(NamedTuple):
    """One chart; lines that share it share its scale."""

    title: str
    curves: tuple[Curve, ...]
    share: bool = False
    """Its figures are shares of one."""


def _percentiles(name: str) -> tuple[Curve, ...]:
    tones = ((99, Tone.DIM), (95, Tone.BUSY), (50, Tone.GOOD))
    return tuple(Curve(f"p{p}", f"{PREFIX}{name}_p{p}", tone) for p, tone in tones)


_PANELS = (
    Panel("tok/s", (Curve("", "engine.tok_s", Tone.GOOD),)),
    Panel(
        "requests",
        (
            Curve("waiting", "engine.waiting", Tone.WARN),
            Curve("running", "engine.running", Tone.GOOD),
        ),
    ),
    Panel("kv in use", (Curve("", "engine.kv", Tone.GOOD),), share=True),
    Panel("tokens a verify", (Curve("", "engine.acceptance", Tone.GOOD),)),
    Panel("ttft ms", _percentiles("ttft_ms")),
    Panel("itl ms", _percentiles("itl_ms")),
)


def room_for_charts(width: int, height: int) -> bool:
    """Return whether a screen of this size shows charts."""
    return width >= _LEAST[0] and height >= _LEAST[1]


def charts(series: Series, width: int, height: int, glyphs: Glyphs) -> list[Row]:
    """Return all charts under one title for a screen of this size; none without figures."""
    if not series.times or not room_for_charts(width, height):
        return []
    each = (width - 1 - _GAP * (_ACROSS - 1)) // _ACROSS
    lines = height // 9
    rows = [glyphs.rule((Span("last 10 minutes", Tone.BRIGHT),), width)]
    for start in range(0, len(_PANELS), _ACROSS):
        drawn = [
            _chart(panel, series, each, lines, glyphs) for panel in _PANELS[start : start + _ACROSS]
        ]
        rows += [_beside(parts, each) for parts in zip(*drawn, strict=True)]
    return rows


def _chart(panel: Panel, series: Series, width: int, height: int, glyphs: Glyphs) -> list[Row]:
    across = (width - _AXIS) * dots(glyphs)[0]
    lines = [Line(pool(series, curve.name, across, SECONDS), curve.tone) for curve in panel.curves]
    top = 1.0 if panel.share else scale(tuple(v for line in lines for v in line.values))
    drawn = draw(lines, top, (width - _AXIS, height), glyphs)
    labels = [""] * height
    labels[0], labels[-1] = _figure(top, panel), "0"
    axis = [Span(f"{label:>{_AXIS - 1}} ", Tone.DIM) for label in labels]
    return [
        _title(panel, series, width, glyphs),
        *((label, *row) for label, row in zip(axis, drawn, strict=True)),
    ]


def scale(values: Values) -> float:
    """Return the round number, 1, 2 or 5 times a power of ten, that no value exceeds."""
    most = max((value for value in values if value is not None), default=0.0)
    if most <= 0:
        return 1.0
    power = 10.0 ** math.floor(math.log10(most))
    return next(step * power for step in _STEPS if step * power >= most * (1 - 1e-9))


def _title(panel: Panel, series: Series, width: int, glyphs: Glyphs) -> Row:
    row: Row = (Span(f"{panel.title} ", Tone.DIM),)
    for curve in reversed(panel.curves):
        value = newest(series, curve.name)
        label = f" {curve.label}" if curve.label else ""
        text = f"{label} {'-' if value is None else _figure(value, panel)}"
        row = (*row, Span(clip(text, width - cells(row), glyphs.more), curve.tone))
    return row


def _figure(value: float, panel: Panel) -> str:
    if panel.share:
        return f"{value:.0%}"
    return f"{value:.1f}" if value < 10 and value % 1 else count(round(value))


def _beside(parts: tuple[Row, ...], width: int) -> Row:
    row: Row = ()
    for number, part in enumerate(parts):
        start = 1 + number * (width + _GAP)
        row = (*row, Span(" " * (start - cells(row))), *part)
    return row
