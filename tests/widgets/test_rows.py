"""Pure pieces: cells, words, signs, rows of the node and of a verdict."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st
from rich.cells import cell_len

from panel.domain.snapshot import ProcessView
from panel.domain.states import LaunchState, ProcessState
from panel.widgets import words
from panel.widgets.glyphs import ASCII, UNICODE
from panel.widgets.rank_rows import progress
from panel.widgets.spans import Span, cells, clip, clipped, fit, spread, wrap

WIDE = st.text(st.sampled_from("ab 世界é…-"), max_size=60)


@given(WIDE, st.integers(0, 40))
def test_clip_and_fit_are_exact_in_cells(text: str, width: int) -> None:
    assert cell_len(clip(text, width)) <= width
    assert cell_len(fit(text, width)) == width
    assert clip(text, 200) == text


@given(st.lists(WIDE, max_size=4), st.integers(1, 60), st.sampled_from("…~"))
def test_a_row_is_clipped_to_its_cells(texts: list[str], width: int, more: str) -> None:
    row = tuple(Span(text) for text in texts)
    shown = clipped(row, width, more)
    assert cells(shown) <= width
    assert (shown == row) == (cells(row) <= width)


@given(WIDE, st.integers(6, 40))
def test_wrap_loses_no_word_and_passes_no_edge(text: str, width: int) -> None:
    lines = wrap(text, width)
    assert "".join(text.split()) == "".join("".join(lines).split())
    assert all(cell_len(line) <= width for line in lines)


def test_spread_puts_the_end_at_the_edge() -> None:
    row = spread((Span("left"),), (Span("end"),), 20)
    assert cells(row) == 20
    assert cells(spread((Span("left"),), (Span("end"),), 3)) == 8


@pytest.mark.parametrize(("count", "text"), [
    (0, "0B"), (999, "999B"), (1024, "1K"), (812 * 1024, "812K"), (1_610_612_736, "1.5G"),
    (24 << 20, "24.0M"), (220 << 20, "220M"), (96 << 30, "96.0G"), (5 << 50, "5120T"),
])  # fmt: skip
def test_sizes_have_at_most_five_cells(count: int, text: str) -> None:
    assert words.size(count) == text
    assert len(text) <= 5


def test_times_and_counts() -> None:
    assert words.clock(45_296.9) == "12:34:56"
    assert words.stamp(751.2204) == "12:31.220"
    assert [words.span_of(s) for s in (4.21, 130, 11_100)] == ["4.2s", "2m10s", "3h05m"]
    assert [words.count(n) for n in (812, 4_210, 271_000)] == ["812", "4.2k", "271k"]


@given(st.lists(st.floats(0, 1e6), max_size=80), st.integers(1, 30))
def test_bars_have_their_width_and_the_greatest_is_full(values: list[float], width: int) -> None:
    bars = UNICODE.bars(tuple(values), width)
    assert len(bars) == width
    if max(values[-width:], default=0.0) > 0:
        assert "█" in bars


def test_every_state_has_its_own_sign_in_both_sets() -> None:
    for glyphs in (UNICODE, ASCII):
        signs = [glyphs.process(state).text for state in ProcessState]
        assert len(set(signs)) == len(signs)
        assert all(glyphs.launch(state).text in signs for state in LaunchState)
    assert all(
        text.isascii()
        for text in (*ASCII.states.values(), ASCII.blocks, ASCII.line, ASCII.ok, ASCII.pointer,
                     ASCII.arrow, ASCII.more, ASCII.on, ASCII.off)
    )  # fmt: skip


def test_progress_names_what_the_phase_counts() -> None:
    def view(**more: object) -> ProcessView:
        return ProcessView(source="rank-0", pid=1, state=ProcessState.BUSY, **more)  # type: ignore[arg-type]

    assert progress(view(phase="weights", done=43, total=100)) == "weights 43%"
    assert progress(view(phase="capture", done=3, total=6, detail=8)) == "capture 3/6 bs 8"
    assert progress(view(phase="dist_init")) == "dist_init"
