"""Sampling: the distribution of a request, with and without drafts."""

from __future__ import annotations

from random import Random

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from panel.server.draw import draw
from panel.server.messages import Generate
from panel.server.sampler import sample
from panel.server.sequence import Sequence
from tests.server import plain_sampler
from tests.server.plain_sampler import probabilities

LOGITS = np.array([2.0, 1.0, 0.5, 0.0, -1.0, -3.0], np.float32)


def sequence(seed: int = 0, draft: list[int] | None = None, **fields: object) -> Sequence:
    request = Generate("x", [1, 2], 10, **fields)  # type: ignore[arg-type]
    made = Sequence(request, 12, Random(seed))
    made.draft = draft or []
    return made


@given(
    st.lists(st.floats(-8, 8, width=32), min_size=2, max_size=20),
    st.floats(0.1, 3),
    st.integers(0, 8),
    st.floats(0.05, 1),
    st.floats(0, 1),
)
def test_the_distribution_keeps_the_most_probable(
    logits: list[float], temperature: float, top_k: int, top_p: float, min_p: float
) -> None:
    row = np.array(logits, np.float32)
    request = Generate("x", [1], 1, temperature, top_p, top_k, min_p)
    chances = probabilities(row, request)
    assert float(chances.sum()) == pytest.approx(1, abs=1e-4)
    # Logits that differ by a rounding error have the same probability.
    assert row[chances.argmax()] == pytest.approx(row.max(), abs=1e-4)
    kept = chances > 0
    assert kept.any()
    if top_k:
        assert int((row > row[kept].min() + 1e-4).sum()) < top_k
    if (~kept).any():
        assert row[kept].min() > row[~kept].max() - 1e-4


@given(
    st.integers(0, 2**32 - 1),
    st.sampled_from([1, 5, 63, 64, 65, 300, 2000]),
    st.floats(0.01, 30),
    st.lists(
        st.fixed_dictionaries(
            {
                "temperature": st.sampled_from([0.0, 0.2, 0.7, 1.0, 1.7]),
                "top_p": st.sampled_from([1.0, 1.0, 0.05, 0.5, 0.9, 0.999, 1 - 2**-53]),
                "top_k": st.sampled_from([0, 0, 1, 7, 40, 5000]),
                "min_p": st.sampled_from([0.0, 0.0, 0.02, 0.7]),
                "presence_penalty": st.sampled_from([0.0, 0.0, 1.5]),
                "repetition_penalty": st.sampled_from([1.0, 1.0, 1.3]),
            }
        ),
        min_size=1,
        max_size=5,
    ),
)
def test_it_agrees_with_the_plain_sampler(
    seed: int, vocabulary: int, spread: float, requests: list[dict[str, float]]
) -> None:
    numbers = np.random.default_rng(seed)
    drafts = [numbers.integers(0, vocabulary, numbers.integers(0, 4)).tolist() for _ in requests]
    begins = np.cumsum([numbers.integers(0, 3) + len(draft) + 1 for draft in drafts])
    logits = (numbers.standard_normal((begins[-1] + 4, vocabulary)) * spread).astype(np.float32)
    logits = logits.round(numbers.integers(0, 6))  # Some are equal.
    ends = []
    for plain in (False, True):
        made = [
            sequence(number, draft, **fields)
            for number, (draft, fields) in enumerate(zip(drafts, requests, strict=True))
        ]
        for one in made:
            one.request.tokens[:] = one.tokens[:] = [0, vocabulary - 1]
        chosen = (plain_sampler.sample if plain else sample)(logits, made, begins.tolist())
        ends.append(([choice.tokens for choice in chosen], [s.random.random() for s in made]))
    assert ends[0] == ends[1]


@given(st.lists(st.floats(0, 1, exclude_max=True), min_size=1, max_size=40), st.integers(0, 9))
def test_a_draw_never_leaves_what_is_kept(numbers: list[float], kind: int) -> None:
    """Also at the last number before 1, with most weights zero and with all alike."""
    row = [np.zeros(130), np.r_[np.zeros(3), np.full(130, -1e4)], np.full(129, -1e4)][kind % 3]
    row[kind] = 0
    fields = [{}, {"top_p": 0.3}, {"min_p": 0.5}, {"top_k": 2}][kind % 4]
    request = Generate("x", [1], 1, **fields)
    kept = probabilities(row, request) > 0
    for number in [*numbers, 1 - 2**-53]:
        assert kept[draw(row, kind, request, number)]


def test_top_p_keeps_the_smallest_set_that_reaches_it() -> None:
    row = np.log([0.5, 0.3, 0.15, 0.05])
    kept = [
        (probabilities(row, Generate("x", [1], 1, top_p=p)) > 0).tolist().count(True)
        for p in (0.4, 0.6, 0.81, 0.97, 1.0)
    ]
    assert kept == [1, 2, 3, 4, 4]


def test_tokens_come_as_often_as_they_are_probable() -> None:
    count = 4000
    numbers = Random(1)
    seen = np.zeros(6)
    for _ in range(count):
        one = sequence(temperature=0.8, top_p=0.95)
        one.random = numbers
        seen[sample(LOGITS[None], [one], [0])[0].tokens[0]] += 1
    expected = probabilities(LOGITS, Generate("x", [1], 1, temperature=0.8, top_p=0.95))
    assert np.allclose(seen / count, expected, atol=0.03)


@given(
    st.integers(0, 1000),
    st.lists(st.integers(0, 5), max_size=5),
    st.sampled_from([{}, {"top_k": 3}, {"repetition_penalty": 1.3}, {"presence_penalty": 0.7}]),
)
def test_a_text_is_the_same_with_drafts_and_without(
    seed: int, draft: list[int], fields: dict[str, float]
) -> None:
    rows = np.tile(LOGITS, (len(draft) + 1, 1)) * np.arange(1, len(draft) + 2)[:, None]
    drafted = sequence(seed, draft, **fields)
    tokens = sample(rows, [drafted], [0])[0].tokens
    plain = sequence(seed, **fields)
    for row in rows[: len(tokens)]:
        plain.tokens += sample(row[None], [plain], [0])[0].tokens
    assert tokens == plain.answer
    assert tokens[:-1] == draft[: len(tokens) - 1]
    assert drafted.random.getstate() == plain.random.getstate()


def test_rows_of_sequences_begin_where_the_plan_says() -> None:
    rows = np.eye(6)[[3, 1, 4, 2, 5]]
    first, second = sequence(0, [3], temperature=0), sequence(temperature=0)
    choices = sample(rows, [first, second], [0, 3])
    assert [choice.tokens for choice in choices] == [[3, 1], [2]]


def test_a_greedy_draft_is_followed_as_far_as_it_is_right() -> None:
    rows = np.eye(6)[[3, 1, 4, 2]]
    assert sample(rows, [sequence(0, [3, 1, 5], temperature=0)], [0])[0].tokens == [3, 1, 4]
    assert sample(rows, [sequence(0, [3, 1, 4], temperature=0)], [0])[0].tokens == [3, 1, 4, 2]
    assert sample(rows, [sequence(0, [0, 1, 4], temperature=0)], [0])[0].tokens == [3]


def test_penalties_count_the_answer_and_not_the_prompt() -> None:
    greedy = sequence(temperature=0, presence_penalty=1.5)
    greedy.request.tokens[:] = [0, 0]
    assert sample(LOGITS[None], [greedy], [0])[0].tokens == [0]
    greedy.tokens.append(0)
    assert sample(LOGITS[None], [greedy], [0])[0].tokens == [1]
    often = sequence(temperature=0, frequency_penalty=0.6)
    often.tokens += [0]
    assert sample(LOGITS[None], [often], [0])[0].tokens == [0]
    often.tokens += [0]
    assert sample(LOGITS[None], [often], [0])[0].tokens == [1]


def test_repetition_counts_prompt_and_answer_and_pulls_down_either_sign() -> None:
    one = sequence(temperature=0, repetition_penalty=2.5, logprobs=0)
    one.request.tokens[:] = one.tokens[:] = [0, 4]
    assert sample(LOGITS[None], [one], [0])[0].tokens == [1]
    one.tokens.append(1)
    assert sample(LOGITS[None], [one], [0])[0].tokens == [0]
    negative = np.array([[-1.0, -2.0]], np.float32)
    one.request.tokens[:] = one.tokens[:] = [0]
    assert sample(negative, [one], [0])[0].tokens == [1]


def test_penalties_count_accepted_drafts_of_the_same_step() -> None:
    rows = np.tile(LOGITS, (3, 1))
    drafted = sequence(0, [0, 0], temperature=0, presence_penalty=1.5)
    assert sample(rows, [drafted], [0])[0].tokens == [0, 1]


def test_logprobs_are_those_before_temperature() -> None:
    chosen = sample(LOGITS[None], [sequence(temperature=0.1, logprobs=2)], [0])[0]
    assert chosen.logprobs is not None
    expected = LOGITS - np.log(np.exp(LOGITS).sum())
    assert chosen.logprobs[0].logprob == pytest.approx(float(expected[chosen.tokens[0]]))
    assert [token for token, _ in chosen.logprobs[0].top] == [0, 1]


@pytest.mark.parametrize("bad", [float("nan"), float("inf")])
def test_bad_logits_end_their_own_sequence_alone(bad: float) -> None:
    rows = np.tile(LOGITS, (2, 1))
    rows[0, 2] = bad
    choices = sample(rows, [sequence(), sequence(temperature=0)], [0, 1])
    assert "NaN" in (choices[0].error or "")
    assert choices[1].tokens == [0]
