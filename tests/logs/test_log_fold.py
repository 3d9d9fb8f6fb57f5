from __future__ import annotations

import itertools

import pytest
from hypothesis import given
from hypothesis import strategies as st

from panel.logs.fold import Fold, Row, fold, label, masked
from panel.logs.merge import place
from panel.logs.records import Level, Record


def said(rank: int | None, text: str, t: float = 0.0, level: Level = Level.INFO) -> Record:
    return Record(
        source="frontend" if rank is None else f"rank-{rank}", rank=rank, t=t, printed=None,
        level=level, prefix="", text=text, offset=int(t * 1000), phase=None,
    )  # fmt: skip


RECORDS = st.lists(
    st.builds(
        said,
        st.sampled_from([None, 0, 1, 2]),
        st.sampled_from(["load 1.5 GB", "load 2.5 GB", "done", "step 1", "step 2"]),
        st.integers(0, 12).map(float),
    ),
    max_size=40,
).map(lambda records: sorted(records, key=place))


@given(RECORDS, st.sampled_from([(), range(3), range(4)]))
def test_unfolding_gives_all_records_back(records: list[Record], world: range) -> None:
    rows = list(fold(records, world))
    unfolded = [record for row in rows for record in row.records]
    assert sorted(map(id, unfolded)) == sorted(map(id, records))
    order = {id(record): number for number, record in enumerate(records)}
    firsts = [order[id(row.first)] for row in rows]
    assert firsts == sorted(firsts)
    for row in rows:
        assert len({record.rank for record in row.records}) == len(row.records)
        assert len({masked(record.text) for record in row.records}) == 1
        assert row.records[-1].t - row.first.t <= 2.0
        places = [order[id(record)] for record in row.records]
        assert places == sorted(places)


@given(RECORDS, st.lists(st.integers(0, 40), max_size=5))
def test_any_portions_give_the_same_rows(records: list[Record], cuts: list[int]) -> None:
    folding = Fold(range(3))
    rows: list[Row] = []
    for a, b in itertools.pairwise([0, *sorted(cuts), len(records)]):
        rows += folding.add(records[a:b])
    assert rows + folding.pending == list(fold(records, range(3)))


@given(RECORDS, st.integers(1, 4))
def test_what_is_held_back_is_bounded(records: list[Record], most: int) -> None:
    folding = Fold(range(3), most_open=most)
    for record in records:
        folding.add((record,))
        assert len(folding.pending) <= most


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ("rank 3 at 0x7fA0 took 1.5 s, 1,000 tokens", "rank # at # took # s, # tokens"),
        ("pid=4711 cuda:3", "pid=# cuda:#"),
        ("id 123e4567-e89b-12d3-a456-426614174000 end", "id # end"),
        ("no numbers", "no numbers"),
    ],
)
def test_masked(text: str, shown: str) -> None:
    assert masked(text) == shown


def rows(*records: Record, world: range = range(4)) -> list[Row]:
    return list(fold(records, world))


def test_the_same_from_all_is_one_row() -> None:
    (row,) = rows(*(said(rank, f"pid {4711 + rank} begins") for rank in (2, 0, 3, 1)))
    assert (row.ranks, row.missing, row.odd) == ((0, 1, 2, 3), (), ())
    assert row.text == "pid # begins"
    assert label(row, range(4)) == "×4 [0123]"


def test_a_rank_that_did_not_say_it_is_missing() -> None:
    (row,) = rows(said(0, "init"), said(1, "init"), said(3, "init"))
    assert (row.missing, label(row, range(4)), row.text) == ((2,), "×3 [01·3]", "init")


def test_the_odd_one_says_something_else() -> None:
    most, odd = rows(said(0, "ok"), said(1, "ok"), said(2, "broken"), said(3, "ok"))
    assert (most.missing, most.odd) == ((2,), ())
    assert (odd.ranks, odd.odd, odd.missing) == ((2,), (2,), ())


def test_the_odd_one_has_another_number() -> None:
    numbers = [said(rank, f"{16.3 if rank == 2 else 21.7} GB left") for rank in range(4)]
    (row,) = rows(*numbers)
    assert (row.odd, row.missing) == ((2,), ())


def test_numbers_that_all_differ_are_not_odd() -> None:
    (row,) = rows(*(said(rank, f"port {3000 + rank}") for rank in range(4)))
    assert row.odd == ()


def test_a_rank_that_often_speaks_alone_is_not_odd() -> None:
    alone = rows(said(0, "Decode batch"), *(said(rank, "tick") for rank in range(4)))
    assert [row.odd for row in alone] == [(), ()]


def test_repeats_of_a_rank_meet_those_of_the_others() -> None:
    found = rows(*(said(rank, "again") for _ in range(3) for rank in range(4)))
    assert [row.ranks for row in found] == [(0, 1, 2, 3)] * 3


def test_the_same_much_later_is_another_row() -> None:
    found = rows(said(0, "tick", 1.0), said(1, "tick", 9.0))
    assert [row.ranks for row in found] == [(0,), (1,)]


def test_levels_are_kept_apart() -> None:
    found = rows(said(0, "x"), said(1, "x", level=Level.ERROR))
    assert [row.ranks for row in found] == [(0,), (1,)]


def test_more_than_ten_ranks_and_none() -> None:
    (row,) = rows(*(said(rank, "x") for rank in (0, 1, 2, 11)), world=range(12))
    assert label(row, range(12)) == "×4 [0-2 11]"
    (front,) = rows(said(None, "x"))
    assert label(front, range(12)) == ""
