"""Figures over time: pooled into columns, drawn as lines."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from panel.domain.series import Series
from panel.widgets.chart import Line, draw
from panel.widgets.glyphs import ASCII, UNICODE, Glyphs
from panel.widgets.node_charts import charts, scale
from panel.widgets.spans import Row, Tone, cells
from panel.widgets.timeline import newest, pool, total

VALUES = st.lists(st.none() | st.floats(0, 1e6), max_size=40).map(tuple)


def series(*values: float | None, first: float = 0.0) -> Series:
    return Series(times=tuple(first + t for t in range(len(values))), values={"a": values})


def text(rows: list[Row]) -> list[str]:
    return ["".join(span.text for span in row) for row in rows]


def test_a_pool_has_the_means_of_equal_spans() -> None:
    assert pool(series(1.0, 3.0, None, 5.0, 7.0, 9.0), "a", 3, 6.0) == (2.0, 5.0, 8.0)


def test_what_is_not_known_stays_unknown() -> None:
    assert pool(series(None, None, 4.0), "a", 4, 4.0) == (None, None, None, 4.0)
    assert pool(series(1.0), "b", 2, 4.0) == (None, None)
    assert pool(Series(), "a", 2, 4.0) == (None, None)


def test_a_column_keeps_its_value_while_time_goes_on() -> None:
    values = tuple(float(n) for n in range(40))
    before = pool(series(*values[:31]), "a", 5, 20.0)
    later = pool(series(*values[:35]), "a", 5, 20.0)
    assert before[1:4] == later[:3]


def test_totals_and_the_newest() -> None:
    assert total([(1.0, None, None), (2.0, 3.0, None)]) == (3.0, 3.0, None)
    assert newest(series(1.0, 2.0), "a") == 2.0
    assert newest(series(), "a") is None


@pytest.mark.parametrize(("most", "top"), [
    (0.0, 1.0), (0.7, 1.0), (1.0, 1.0), (1.1, 2.0), (43.0, 50.0), (431.0, 500.0), (501.0, 1000.0),
])  # fmt: skip
def test_scales_are_round(most: float, top: float) -> None:
    assert scale((None, most)) == pytest.approx(top)


@given(st.floats(1e-6, 1e12))
def test_no_value_exceeds_its_scale(most: float) -> None:
    assert most <= scale((most,)) * (1 + 1e-6)
    assert scale((most,)) <= most * 2.5 * (1 + 1e-6)


@given(VALUES, st.integers(1, 20), st.integers(1, 8), st.sampled_from([UNICODE, ASCII]))
def test_a_chart_has_its_size(
    values: tuple[float | None, ...], width: int, height: int, glyphs: Glyphs
) -> None:
    rows = draw([Line(values, Tone.GOOD)], 1e6, (width, height), glyphs)
    assert [cells(row) for row in rows] == [width] * height


def test_lines_in_braille_and_in_ascii() -> None:
    line = Line((0.0, 1.0, 2.0, 3.0), Tone.GOOD)
    assert text(draw([line], 3.0, (2, 1), UNICODE)) == ["⡠⠊"]
    assert text(draw([line], 3.0, (4, 4), ASCII)) == ["   *", "  * ", " *  ", "*   "]


def test_steep_lines_are_joined_and_gaps_are_not() -> None:
    steep = Line((0.0, 3.0, None, 3.0), Tone.GOOD)
    assert text(draw([steep], 3.0, (4, 4), ASCII)) == [" * *", " *  ", " *  ", "*   "]


def test_where_lines_meet_the_later_one_is_seen() -> None:
    lines = [Line((1.0, 0.0), Tone.DIM), Line((1.0, 1.0), Tone.GOOD)]
    top, bottom = draw(lines, 1.0, (2, 2), ASCII)
    assert [span.tone for span in top] == [Tone.GOOD]
    assert bottom[-1].tone is Tone.DIM


@pytest.mark.parametrize("size", [(100, 36), (120, 40), (200, 60)])
def test_charts_fit_their_screen(size: tuple[int, int]) -> None:
    found = Series(times=(1.0, 2.0), values={"engine.tok_s": (1.0, 2.0)})
    rows = charts(found, *size, UNICODE)
    assert all(cells(row) <= size[0] for row in rows)
    assert len(rows) < size[1] // 2
    assert charts(found, 99, 60, UNICODE) == charts(Series(), *size, UNICODE) == []
