from __future__ import annotations

from typing import NamedTuple

from hypothesis import given
from hypothesis import strategies as st

from panel.logs.merge import Arrivals, merge, parse_times, place


class At(NamedTuple):
    t: float
    source: str
    offset: int


PAIRS = st.lists(st.tuples(st.floats(0, 100), st.integers(0, 1000)), max_size=30)


@given(PAIRS, st.lists(st.integers(0, 1200), min_size=1))
def test_times_never_go_back(pairs: list[tuple[float, int]], offsets: list[int]) -> None:
    arrivals = Arrivals(pairs)
    times = [arrivals.at(offset) for offset in sorted(offsets)]
    assert times == sorted(times)


@given(PAIRS.map(sorted), st.integers(0, 30), st.integers(0, 1200))
def test_overlapping_windows_add_nothing(
    pairs: list[tuple[float, int]], cut: int, offset: int
) -> None:
    once, twice = Arrivals(pairs), Arrivals(pairs[:cut])
    twice.extend(pairs)
    assert once.at(offset) == twice.at(offset)


def test_a_byte_arrived_with_the_last_pair_before_it() -> None:
    arrivals = Arrivals([(1.0, 10), (2.0, 20)])
    assert [arrivals.at(offset) for offset in (0, 10, 19, 20, 999)] == [1.0, 1.0, 1.0, 2.0, 2.0]
    assert Arrivals().at(5) == 0.0


def test_times_file_with_a_line_still_being_written() -> None:
    assert parse_times(b'{"t":0.5,"offset":0}\nnot json\n{"t":1,"offset":9}\n{"t":2,"off') == [
        (0.5, 0),
        (1.0, 9),
    ]


@given(
    st.dictionaries(
        st.sampled_from(["rank-0", "rank-1", "rank-10", "frontend"]),
        st.lists(st.tuples(st.integers(0, 5), st.integers(0, 50)), max_size=20),
    )
)
def test_merge_orders_all_and_loses_none(logs: dict[str, list[tuple[int, int]]]) -> None:
    streams = [sorted(At(t, source, o) for t, o in places) for source, places in logs.items()]
    merged = list(merge(streams))
    assert merged == sorted((item for stream in streams for item in stream), key=place)
