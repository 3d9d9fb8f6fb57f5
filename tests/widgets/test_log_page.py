"""The page: where it stands when lines come and go."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from panel.logs.records import Level, Record
from panel.widgets.log_page import LogPage
from panel.widgets.log_rows import LogRows
from panel.widgets.log_traces import row_place


def records_of(lines: list[str], first: int = 0, rank: int = 0) -> list[Record]:
    return [
        Record(source=f"rank-{rank}", rank=rank, t=float(first + n), printed=None, text=text,
               level=Level.INFO, prefix="", offset=10 * (first + n), phase=None)
        for n, text in enumerate(lines)
    ]  # fmt: skip


def page_of(lines: list[str], **more: int | bool) -> LogPage:
    rows = LogRows()
    rows.show(records_of(lines))
    return LogPage(rows, **more)  # type: ignore[arg-type]


def grow(page: LogPage, lines: list[str]) -> None:
    held = list(page.rows._taken)
    page.rows.show(held + records_of(lines, len(held)))


def shown(page: LogPage) -> list[str]:
    return [page.rows.visible[line.at].text for line in page.lines()]


def numbered(first: int, last: int) -> list[str]:
    return [f"{number:04}" for number in range(first, last)]


def test_it_follows_the_end() -> None:
    page = page_of(numbered(0, 10), height=3)
    assert shown(page) == ["0007", "0008", "0009"]
    assert page.current is not None
    assert page.current.text == "0009"
    grow(page, numbered(10, 12))
    assert shown(page) == ["0009", "0010", "0011"]


def test_looking_back_holds_the_place_and_counts_the_news() -> None:
    page = page_of(numbered(0, 10), height=3)
    page.scroll(-2)
    assert shown(page) == ["0005", "0006", "0007"]
    grow(page, numbered(10, 14))
    assert shown(page) == ["0005", "0006", "0007"]
    assert (page.follows, page.news) == (False, 4)
    page.count_anew()
    assert page.news == 0
    page.scroll(100)
    assert (page.follows, page.news) == (True, 0)
    assert shown(page) == ["0011", "0012", "0013"]


def test_the_oldest_line_is_the_end_of_scrolling_up() -> None:
    page = page_of(numbered(0, 10), height=3)
    page.scroll(-50)
    assert shown(page)[0] == "0000"
    page.scroll(1)
    assert shown(page)[0] == "0001"


def test_the_current_line_moves_first_and_then_the_page() -> None:
    page = page_of(numbered(0, 10), height=3)
    page.move(-1)
    assert (page.follows, page.current_index) == (False, 8)
    assert shown(page) == ["0007", "0008", "0009"]
    page.move(-2)
    assert (page.current_index, shown(page)[0]) == (6, "0006")
    page.move(3)
    assert (page.current_index, shown(page)) == (9, ["0007", "0008", "0009"])
    page.move(1)
    assert page.follows


def test_scrolling_keeps_the_current_line_in_sight() -> None:
    page = page_of(numbered(0, 30), height=5)
    page.move(-1)
    page.scroll(-10)
    assert page.current_index == page.lines()[-1].at
    page.scroll(7)
    assert page.current_index == page.lines()[0].at


def test_less_than_a_page_stands_at_the_top() -> None:
    page = page_of(numbered(0, 2), height=5)
    assert shown(page) == ["0000", "0001"]
    empty = page_of([], height=5)
    assert (empty.lines(), empty.current) == ([], None)
    empty.move(-1)
    empty.scroll(-1)
    empty.home()
    assert empty.follows


def test_long_lines_wrap_and_are_walked_piece_by_piece() -> None:
    page = page_of(["x" * 25, "short", "世界" * 6], width=10, height=4, wrap=True)
    assert [tuple(line) for line in page.lines()] == [(1, 0), (2, 0), (2, 1), (2, 2)]
    page.scroll(-1)
    assert [tuple(line) for line in page.lines()][:2] == [(0, 2), (1, 0)]
    assert "".join(page.pieces(page.rows.visible[2])) == "世界" * 6


def test_an_opened_line_shows_all_it_has() -> None:
    page = page_of(["first", 'POST {"a": [1, 2], "b": "x"} done', "last"], width=40, height=20)
    row = page.rows.visible[1]
    page.rows.toggle(row_place(row))
    assert page.pieces(row) == [
        'POST {"a": [1, 2], "b": "x"} done',
        "  {", '    "a": [', "      1,", "      2", "    ],", '    "b": "x"', "  }",
    ]  # fmt: skip
    assert len(page.lines()) == 10
    page.rows.toggle(row_place(row))
    assert len(page.lines()) == 3


def test_a_far_line_is_brought_to_the_upper_third() -> None:
    page = page_of(numbered(0, 100), height=9)
    page.go(50, centre=True)
    assert (shown(page)[0], page.current_index) == ("0047", 50)
    page.go(52, centre=True)
    assert (shown(page)[0], page.current_index) == ("0047", 52)


def test_hiding_rows_keeps_a_place_nearby() -> None:
    page = page_of(numbered(0, 50), height=5)
    page.scroll(-20)
    top = shown(page)[0]
    page.rows.picked = frozenset({9})
    page.rows.again()
    assert page.lines() == []
    page.rows.picked = frozenset()
    page.rows.again()
    assert shown(page)[0] == top


@given(
    st.lists(st.text("ab世 ", max_size=30), min_size=1, max_size=20),
    st.lists(st.tuples(st.booleans(), st.integers(-7, 7)), max_size=12),
    st.booleans(),
    st.integers(1, 8),
)
@settings(deadline=None, max_examples=150)
def test_a_page_is_always_full_and_in_order(
    lines: list[str], steps: list[tuple[bool, int]], wrap: bool, height: int
) -> None:
    page = page_of(lines, width=9, height=height, wrap=wrap)
    total = sum(len(page.pieces(row)) if wrap else 1 for row in page.rows.visible)
    for scrolls, step in steps:
        (page.scroll if scrolls else page.move)(step)
        held = page.lines()
        assert len(held) == min(height, total)
        assert held == sorted(held)
        assert len(set(held)) == len(held)
        assert held[0].at <= page.current_index <= held[-1].at


@pytest.mark.parametrize("wrap", [False, True])
def test_down_undoes_up(wrap: bool) -> None:
    page = page_of(["y" * 25] * 30, width=10, height=6, wrap=wrap)
    page.scroll(-15)
    before = page.lines()
    page.scroll(-5)
    page.scroll(5)
    assert page.lines() == before
