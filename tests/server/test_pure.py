"""Small pure parts: drafts, buckets, drills, flags."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from panel.server.faults import Kind, parse_fault
from panel.server.graphs import bucket_table, padded
from panel.server.options import OPTIONS, OptionError, parse, resolve, to_argv
from panel.server.phases import Phase
from panel.server.speculative import Guess, NgramIndex, Pace


def slow_draft(tokens: list[int], longest: int, shortest: int, most: int) -> list[int]:
    for size in range(longest, shortest - 1, -1):
        for end in range(len(tokens) - 1, size - 1, -1):
            if size <= len(tokens) and tokens[end - size : end] == tokens[-size:]:
                text = list(tokens)
                for step in range(most):
                    text.append(text[end + step])
                return text[len(tokens) :]
    return []


@given(
    st.lists(st.integers(0, 3), min_size=1, max_size=60),
    st.lists(st.integers(1, 59), max_size=5),
    st.integers(1, 4),
    st.integers(0, 3),
)
def test_drafts_copy_what_follows_the_latest_longest_match(
    tokens: list[int], looks: list[int], shortest: int, extra: int
) -> None:
    index = NgramIndex(shortest + extra, shortest)
    for size in [*sorted(look for look in looks if look < len(tokens)), len(tokens)]:
        seen = tokens[:size]
        assert index.draft(seen, 4) == slow_draft(seen, shortest + extra, shortest, 4)


def test_text_that_repeats_is_drafted_in_full() -> None:
    assert NgramIndex(4, 2).draft([9, 5, 5, 5], 4) == [5, 5, 5, 5]
    assert NgramIndex(4, 2).draft([1, 2, 3] * 2, 5) == [1, 2, 3, 1, 2]


@given(st.floats(0.001, 0.1), st.floats(0, 1), st.integers(2, 17), st.integers(1, 8))
def test_the_pace_is_learnt_whatever_else_the_machine_does(
    step: float, share: float, width: int, every: int
) -> None:
    pace = Pace()
    for number in range(200):
        slow = 10 if number % (2 + every) == 0 else 1
        pace.learn(4, 1, step * slow)
        pace.learn(4, width, step * (1 + share * (width - 1)))
    assert pace.cost(4, width) == pytest.approx(1 + share * (width - 1))
    assert pace.cost(4, 1) == 1
    assert pace.cost(8, 3) == pytest.approx(1.2)


def test_what_drafts_cost_is_not_told_from_the_slow_steps_of_a_start() -> None:
    pace = Pace()
    for _ in range(8):
        pace.learn(1, 1, 0.5)
    assert not pace.compares(1)
    for _ in range(8):
        pace.learn(1, 4, 0.008)
    assert not pace.compares(1)
    for _ in range(8):
        pace.learn(1, 1, 0.005)
    assert pace.compares(1)
    assert pace.cost(1, 4) == pytest.approx(1.6)


@pytest.mark.parametrize(
    ("share", "hope", "width"),
    [(0.0, 0.1, 5), (1.0, 0.95, 1), (0.1, 0.95, 5), (0.1, 0.05, 1), (0.1, 0.5, 3)],
)
def test_drafts_are_as_long_as_they_pay(share: float, hope: float, width: int) -> None:
    pace = Pace()
    for _ in range(40):
        pace.learn(1, 1, 0.005)
        pace.learn(1, 5, 0.005 * (1 + 4 * share))
    assert pace.best_width(1, 0, [Guess(4, hope)]) == width
    assert pace.best_width(1, 1, []) == 1


@pytest.mark.parametrize(
    ("flags", "buckets"),
    [
        ({}, (1, 2, 4, 8, 16)),
        ({"max-running-requests": "12"}, (1, 2, 4, 8, 12)),
        ({"cuda-graph-max-bs": "4"}, (1, 2, 4)),
        ({"cuda-graph-bs": "6 2 64"}, (2, 6)),
        ({"disable-cuda-graph": "true"}, ()),
    ],
)
def test_buckets_follow_the_flags(flags: dict[str, str], buckets: tuple[int, ...]) -> None:
    assert bucket_table(resolve(flags)) == buckets


def test_a_batch_goes_to_the_next_bucket() -> None:
    assert [padded(count, (1, 4, 8)) for count in (1, 2, 4, 5, 9)] == [1, 4, 4, 8, 9]
    assert padded(3, ()) == 3


def test_a_drill_is_read() -> None:
    fault = parse_fault("rank=3,phase=capture,kind=assert", 8)
    assert (fault.rank, fault.phase, fault.kind, fault.after) == (3, "capture", "assert", 0)
    assert parse_fault("rank=0,phase=serving,kind=slow", 8).after == 3
    assert parse_fault("kind=kill,after=0.5,phase=serving,rank=0", 8).after == 0.5
    for phase in Phase:
        for kind in Kind:
            assert parse_fault(f"rank=0,phase={phase},kind={kind}", 1).kind is kind


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("", "unknown key ''"),
        ("rank=0,phase=serving", "kind is missing"),
        ("rank=0,phase=serving,kind=kill,when=2", "unknown key 'when'"),
        ("rank=x,phase=serving,kind=kill", "are numbers"),
        ("rank=0,phase=serving,kind=kill,after=-1", "below 0"),
        ("rank=0,phase=serving,kind=kill,after=nan", "below 0"),
        ("rank=8,phase=serving,kind=kill", "ranks are 0 to 7"),
        ("rank=0,phase=serving,kind=sgev", "did you mean segv"),
    ],
)
def test_a_bad_drill_is_refused_with_the_way_out(text: str, words: str) -> None:
    with pytest.raises(OptionError, match=words):
        parse_fault(text, 8)


def test_flags_survive_the_way_to_argv_and_back() -> None:
    values = {"tp-size": "4", "cuda-graph-bs": "1,2", "disable-cuda-graph": "true", "port": "1234"}
    assert parse(to_argv(values)) == resolve(values)
    assert parse(["--cuda-graph-bs", "1", "2", "--disable-cuda-graph"]).cuda_graph_bs == (1, 2)
    assert {option.name for option in OPTIONS} >= set(values)


@pytest.mark.parametrize(
    ("argv", "words"),
    [
        (["--tp-sise", "4"], "did you mean tp-size"),
        (["--tp-size", "four"], "not a whole number"),
        (["--tp-size"], "needs a value"),
        (["--tp-size", "0"], "below 1"),
        (["serve"], "not a flag"),
        (["--speculative-algorithm", "ngrm"], "did you mean ngram"),
    ],
)
def test_bad_flags_are_refused(argv: list[str], words: str) -> None:
    with pytest.raises(OptionError, match=words):
        parse(argv)
