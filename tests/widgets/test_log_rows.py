"""Rows of records, and what they look like."""

from __future__ import annotations

import gc
import time
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from panel.domain.errors import UsageError
from panel.logs.merge import place
from panel.logs.query import Query
from panel.logs.records import Level, Record
from panel.widgets.glyphs import ASCII
from panel.widgets.log_column import column
from panel.widgets.log_details import details
from panel.widgets.log_look import Look
from panel.widgets.log_rows import LogRows
from panel.widgets.log_times import Clock, Epoch, clocks, moment, shown
from panel.widgets.log_traces import row_place
from panel.widgets.spans import Row, Tone, cells


def record(t: float, rank: int | None, text: str, **more: Any) -> Record:
    usual: dict[str, Any] = {
        "source": "frontend" if rank is None else f"rank-{rank}", "rank": rank, "t": t,
        "printed": None, "level": Level.INFO, "prefix": "", "text": text,
        "offset": int(t * 1000), "phase": None,
    }  # fmt: skip
    return Record(**(usual | more))


def traced(t: float, rank: int, frames: int) -> list[Record]:
    lines = ["Traceback (most recent call last):"]
    for frame in range(frames):
        lines += [f'  File "f{frame}.py", line {frame}, in f', f"    call {frame}", "    ^^^^"]
    lines += ["ValueError: bad", ""]
    return [record(t + n / 100, rank, text, level=Level.ERROR) for n, text in enumerate(lines)]


def rows_of(records: list[Record], **more: Any) -> LogRows:
    rows = LogRows(folds=more.pop("folds", False))
    for name, value in more.items():
        setattr(rows, name, value)
    rows.show(sorted(records, key=place))
    return rows


def texts(rows: LogRows) -> list[str]:
    return [row.text for row in rows.visible]


def text_of(row: Row) -> str:
    return "".join(span.text for span in row)


# Rows


RECORDS = st.lists(
    st.tuples(st.integers(0, 40), st.integers(0, 3), st.sampled_from(["step 1", "step 2", "odd"])),
    max_size=40,
    unique_by=lambda said: said[:2],
).map(lambda said: sorted([record(t / 4, r, x) for t, r, x in said], key=place))


@given(RECORDS, st.booleans(), st.sets(st.integers(0, 3)), st.data())
def test_growing_step_by_step_is_showing_all_at_once(
    records: list[Record], folds: bool, picked: set[int], data: st.DataObject
) -> None:
    rows, whole = LogRows(folds=folds), LogRows(folds=folds)
    rows.picked = whole.picked = frozenset(picked)
    rows.world = whole.world = 4
    at = 0
    while at < len(records):
        at = data.draw(st.integers(at + 1, len(records)))
        rows.show(records[:at])
    whole.show(records)
    if records:
        assert rows.visible == whole.visible
    shown = [r for row in rows.visible for r in row.records]
    assert sorted(shown, key=place) == [r for r in records if not picked or r.rank in picked]


def test_equal_lines_are_one_row_until_that_is_not_wanted() -> None:
    records = [record(1 + rank / 10, rank, f"step {rank}") for rank in range(8)]
    rows = rows_of(records, folds=True, world=8)
    assert texts(rows) == ["step #"]
    rows.folds = False
    rows.again()
    assert texts(rows) == [f"step {rank}" for rank in range(8)]


def test_a_source_is_picked_by_name_and_a_rank_wherever_it_speaks() -> None:
    said = [record(1, 3, "a"), record(2, None, "b"), record(3, 3, "c", source="engine")]
    assert texts(rows_of(said, picked=frozenset({3}))) == ["a", "c"]
    assert texts(rows_of(said, picked=frozenset({"frontend"}))) == ["b"]


def test_a_traceback_is_its_last_frame_until_it_is_opened() -> None:
    rows = rows_of([*traced(1, 3, 4), record(1.025, 5, "between"), record(9, 3, "after")])
    closed = ["Traceback (most recent call last):", "between", '  File "f3.py", line 3, in f',
              "    call 3", "    ^^^^", "ValueError: bad", "", "after"]  # fmt: skip
    assert texts(rows) == closed
    head = rows.visible[0]
    assert rows.frames(head) == 3
    whole = [record.text for record in traced(1, 3, 4)[:-1]]
    assert [row.text for row in rows.trace(row_place(head))] == whole
    rows.toggle(row_place(head))
    assert len(rows.visible) == 17
    assert rows.frames(head) == 0
    assert rows.trace(row_place(head)) == []
    rows.toggle(row_place(head))
    assert texts(rows) == closed


def test_tracebacks_of_several_ranks_fold_together() -> None:
    records = [line for rank in range(3) for line in traced(1 + rank / 1000, rank, 3)]
    rows = rows_of(records, folds=True, world=3)
    assert [len(row.records) for row in rows.visible] == [3] * 6
    assert rows.frames(rows.visible[0]) == 2


def test_a_hidden_line_is_found_and_its_traceback_opened() -> None:
    records = traced(1, 3, 4)
    rows = rows_of(records)
    index = rows.index_of(place(records[2]))
    assert index is not None
    assert rows.visible[index].text == "    call 0"
    assert rows.index_of((1.0, "rank-3", 77)) is None


# Looks


def test_margins_say_who_and_when() -> None:
    rows = rows_of([record(61.5, rank, "step", level=Level.ERROR) for rank in (0, 2, 3)],
                   folds=True, world=4)  # fmt: skip
    (row,) = rows.visible
    look = Look(folds=True, world=4)
    margin = look.margin(row, 80)
    assert text_of(margin) == " 01:01.500 ×3     0·23  "
    assert cells(margin) == look.margin_width(80)
    look.marks.add(row_place(row))
    assert text_of(look.margin(row, 80)).startswith("▸")
    assert cells(look.margin(row, 50)) == look.margin_width(50) == 4
    look.folds = False
    assert text_of(look.margin(row, 80)) == "▸01:01.500  0 "
    assert cells(look.margin(row, 80)) == look.margin_width(80)


def test_who_differs_has_a_sign_and_ascii_has_signs_too() -> None:
    said = [record(1, rank, f"loss {7 if rank == 2 else 3}") for rank in range(4)]
    (row,) = rows_of(said, folds=True, world=4).visible
    margin = Look(folds=True, world=4, glyphs=ASCII).margin(row, 80)
    assert text_of(margin) == " 00:01.000 x4     0123! "
    assert [span.text for span in margin if span.tone is Tone.BAD] == ["2", "!"]


@pytest.mark.parametrize(("ranks", "who"), [(range(12), "×12 0-11"), ((1, 11), "×2 1 11")])
def test_many_ranks_are_written_as_ranges(ranks: tuple[int, ...], who: str) -> None:
    said = [record(1, rank, "same") for rank in ranks]
    (row,) = rows_of(said, folds=True, world=12).visible
    look = Look(folds=True, world=12)
    assert text_of(look.margin(row, 80))[11:].rstrip() == who
    assert cells(look.margin(row, 80)) == look.margin_width(80)


def test_lanes_put_each_rank_in_its_own_place() -> None:
    first, second, third = rows_of(
        [record(1, 1, "one"), record(2, 3, "three"), record(3, None, "front")]
    ).visible
    look = Look(lanes=(1, 3))
    assert text_of(look.body(first, "one", 0, 40)).rstrip() == "1 one"
    assert text_of(look.body(second, "three", 0, 40)).rstrip() == " " * 20 + "3 three"
    assert text_of(look.body(third, "front", 0, 40)) == "frontend: front"
    assert cells(look.body(second, "three" * 20, 0, 40)) <= 40


def test_what_is_sought_is_marked() -> None:
    look = Look(needle=Query(pattern=r"ste\w+", ignore_case=True).marker)
    spans = look.marked("a Step and steps", Tone.PLAIN)
    assert [span.text for span in spans if span.tone is Tone.HIT] == ["Step", "steps"]
    assert text_of(spans) == "a Step and steps"


@pytest.mark.parametrize(
    ("pattern", "runs"),
    [("plain", True), (r"\d+ of \d+", True), ("(a+)+b", False), ("(a|b*)*c", False),
     ("a*b*c*", False), (r"(a)\1", False), ("(?:ab)?c+", True), ("a{3}", True)],
)  # fmt: skip
def test_only_patterns_that_end_soon_are_run_here(pattern: str, runs: bool) -> None:
    assert (Query(pattern=pattern).marker is not None) is runs
    assert Query(pattern=pattern, invert=True).marker is None


def test_scrolling_sideways_counts_cells() -> None:
    (row,) = rows_of([record(1, 1, "世界" * 10)]).visible
    assert text_of(Look().body(row, "世界" * 10, 4, 10)).startswith("世界")
    assert text_of(Look().body(row, "abcdef", 4, 10)) == "ef"


def test_json_is_found_anywhere_in_a_line() -> None:
    assert details("no json {here} [1") == []
    assert details('a [x] {"b": 1} {"c": 2}') == ["  {", '    "b": 1', "  }"]
    assert details("empty {} []") == []


def test_json_that_is_too_deep_is_no_json() -> None:
    # What looks at collections has no room left either.
    gc.disable()
    try:
        assert details("[" * 3000) == []
    finally:
        gc.enable()


def test_the_column_shows_errors_and_the_page() -> None:
    signs = column([0, 4, 0, 1, 0], (60.0, 90.0), 100.0, ASCII)
    assert "".join(span.text for span in signs) == " # -|"
    assert column([0], (0.0, 0.0), 0.0, ASCII)[0].text == "|"


# Times

EPOCH = Epoch(time.mktime((2026, 11, 30, 23, 59, 0, 0, 0, -1)), 90.0)


def test_times_are_counted_from_three_things() -> None:
    assert shown(61.5, Clock.LAUNCH, EPOCH) == "01:01.500"
    assert shown(61.5, Clock.DAY, EPOCH) == "00:00:01.500"
    assert shown(61.5, Clock.CRASH, EPOCH) == "-00:28.500"
    assert shown(91.0, Clock.CRASH, EPOCH) == "+00:01.000"
    assert clocks(EPOCH) == list(Clock)
    assert Clock.CRASH not in clocks(Epoch())


@pytest.mark.parametrize(
    ("text", "t"),
    [("751", 751.0), ("12:31", 751.0), (" 12:31.5", 751.5), ("crash", 90.0), ("crash-10", 80.0),
     ("crash+0.5", 90.5), ("crash-1:40", 0.0), ("23:59:30", 30.0), ("00:01:00", 120.0)],
)  # fmt: skip
def test_moments_as_they_are_typed(text: str, t: float) -> None:
    assert moment(text, EPOCH) == t


@pytest.mark.parametrize("text", ["", "soon", "-5", "12:", "1:2:3:4", "crash"])
def test_what_is_no_moment(text: str) -> None:
    with pytest.raises(UsageError):
        moment(text, Epoch())
