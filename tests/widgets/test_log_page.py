"""The page: where it stands when lines come and go."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from panel.domain.wire import LogWindow
from panel.widgets.log_model import LogModel
from panel.widgets.log_page import LogPage


def model_of(lines: list[str]) -> LogModel:
    model = LogModel()
    grow(model, lines)
    return model


def grow(model: LogModel, lines: list[str], end: int = 0) -> None:
    text = "".join(f"{line}\n" for line in lines)
    size = end + len(text.encode())
    model.add([LogWindow(source="rank-0", offset=end, end=size, size=size, text=text,
                         times=((float(end), end),))])  # fmt: skip


def shown(page: LogPage) -> list[str]:
    return [page.model.visible[line.at].text for line in page.lines()]


def numbered(first: int, last: int) -> list[str]:
    return [f"{number:04}" for number in range(first, last)]


def test_it_follows_the_end() -> None:
    page = LogPage(model_of(numbered(0, 10)), height=3)
    assert shown(page) == ["0007", "0008", "0009"]
    grow(page.model, numbered(10, 12), 50)
    assert shown(page) == ["0009", "0010", "0011"]


def test_looking_back_holds_the_place_and_counts_the_news() -> None:
    page = LogPage(model_of(numbered(0, 10)), height=3)
    assert page.scroll(-2)
    assert shown(page) == ["0005", "0006", "0007"]
    grow(page.model, numbered(10, 14), 50)
    assert shown(page) == ["0005", "0006", "0007"]
    assert (page.follows, page.news) == (False, 4)
    page.scroll(100)
    assert (page.follows, page.news) == (True, 0)
    assert shown(page) == ["0011", "0012", "0013"]


def test_the_oldest_line_is_the_end_of_scrolling_up() -> None:
    page = LogPage(model_of(numbered(0, 10)), height=3)
    assert not page.scroll(-50)
    assert shown(page)[0] == "0000"
    assert page.scroll(1)


def test_less_than_a_page_stands_at_the_top() -> None:
    page = LogPage(model_of(numbered(0, 2)), height=5)
    assert shown(page) == ["0000", "0001"]
    assert LogPage(LogModel(), height=5).lines() == []


def test_long_lines_wrap_and_are_walked_piece_by_piece() -> None:
    page = LogPage(model_of(["x" * 25, "short", "世界" * 6]), width=10, height=4, wrap=True)
    assert [tuple(line) for line in page.lines()] == [(1, 0), (2, 0), (2, 1), (2, 2)]
    page.scroll(-1)
    assert [tuple(line) for line in page.lines()][:2] == [(0, 2), (1, 0)]
    assert "".join(page.pieces(page.model.visible[2])) == "世界" * 6


def test_hits_are_walked_in_a_circle_from_the_page() -> None:
    lines = ["needle" if number in (2, 30, 60) else f"{number}" for number in range(100)]
    page = LogPage(model_of(lines), height=10)
    page.model.search("needle")
    page.find(-1)
    assert page.found == (3, 3)
    assert "needle" in shown(page)
    page.find(-1)
    assert page.found == (2, 3)
    page.find(1)
    page.find(1)
    assert page.found == (1, 3)
    assert "needle" in shown(page)
    grow(page.model, ["needle"], len("".join(f"{line}\n" for line in lines)))
    assert page.found == (1, 4)
    page.model.search("nothing")
    page.find(1)
    assert page.found == (0, 0)


def test_filtering_keeps_a_place_nearby() -> None:
    page = LogPage(model_of(numbered(0, 50)), height=5)
    page.scroll(-20)
    top = shown(page)[0]
    page.model.pick(frozenset({"rank-9"}))
    assert page.lines() == []
    page.model.pick(frozenset())
    assert shown(page)[0] == top


@given(
    st.lists(st.text("ab世 ", max_size=30), min_size=1, max_size=20),
    st.lists(st.integers(-7, 7), max_size=12),
    st.booleans(),
    st.integers(1, 8),
)
@settings(deadline=None, max_examples=150)
def test_a_page_is_always_full_and_in_order(
    lines: list[str], steps: list[int], wrap: bool, height: int
) -> None:
    page = LogPage(model_of(lines), width=9, height=height, wrap=wrap)
    total = sum(len(page.pieces(r)) if wrap else 1 for r in page.model.visible)
    for step in steps:
        page.scroll(step)
        held = page.lines()
        assert len(held) == min(height, total)
        assert held == sorted(held)
        assert len(set(held)) == len(held)


@pytest.mark.parametrize("wrap", [False, True])
def test_down_undoes_up(wrap: bool) -> None:
    page = LogPage(model_of(["y" * 25] * 30), width=10, height=6, wrap=wrap)
    page.scroll(-15)
    before = page.lines()
    page.scroll(-5)
    page.scroll(5)
    assert page.lines() == before
