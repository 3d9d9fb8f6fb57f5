"""The log probabilities of a prompt against those of transformers."""

from __future__ import annotations

import random
from pathlib import Path
from random import Random

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from panel.server.batch import build_batch
from panel.server.cache import Cache
from panel.server.cuda.layout import Paper, lay_out
from panel.server.messages import Generate, TokenLogprob
from panel.server.pages import PageAllocator
from panel.server.plan import Plan, Segment, Work, decode_plan, encode_plan
from panel.server.sampler import sample
from panel.server.schedule import Limits
from panel.server.scheduler import Scheduler
from panel.server.score import score, score_prompts
from panel.server.sequence import Sequence
from tests.server.checkpoints import Checkpoint, Checkpoints
from tests.server.support import Answer, Nursery

VOCABULARY = 32


def scored(name: str, tokens: list[int], count: int = 4) -> Generate:
    return Generate(name, tokens, count, temperature=0, logprobs=2, prompt_logprobs=True)


def prompt(number: int, size: int) -> list[int]:
    numbers = random.Random(number)
    return [numbers.randrange(512) for _ in range(size)]


def entries(answer: Answer) -> list[TokenLogprob]:
    return [each for piece in answer.pieces for each in piece.prompt_logprobs or []]


def check(reference: Checkpoint, request: Generate, answer: Answer) -> None:
    told = entries(answer)
    assert [each.token for each in told] == request.tokens[1:]
    wanted = reference.logits(request.tokens).log_softmax(-1)
    for row, each in zip(wanted, told, strict=False):
        assert each.logprob == pytest.approx(float(row[each.token]), abs=1e-4)
        most = row.topk(2)
        assert [value for _, value in each.top] == pytest.approx(most.values.tolist(), abs=1e-4)
    assert len(answer.tokens) == request.max_new_tokens


@pytest.mark.parametrize(
    "flags",
    [
        {"tp_size": 2, "max_running_requests": 4},
        {"tp_size": 4, "ep_size": 4, "moe_a2a_backend": "shm", "dp_attention": True},
        {"tp_size": 2, "speculative_algorithm": "ngram", "max_total_tokens": 160, "page_size": 8},
    ],
)
def test_a_prompt_is_scored_as_transformers_scores_it(
    flags: dict[str, object], checkpoints: Checkpoints, nursery: Nursery, tmp_path: Path
) -> None:
    reference = checkpoints["v3-tied"]
    requests = [scored(str(size), prompt(5, size), 30) for size in (1, 2, 17, 33, 60)]
    plain = Generate("plain", prompt(5, 40), 30, temperature=0)
    with nursery.gang(
        tmp_path, model_path=reference.folder, chunked_prefill_size=32, context_length=128, **flags
    ) as gang:
        gang.wait_started()
        gang.generate(plain)
        answers = gang.generate(*requests, plain)
        for request, answer in zip(requests, answers, strict=False):
            check(reference, request, answer)
            assert not any(piece.cached_tokens for piece in answer.pieces)
        assert not entries(answers[-1])
        assert gang.wait_stats().kv_used == 0


@given(st.lists(st.tuples(st.integers(1, 40), st.booleans()), min_size=1, max_size=6), st.data())
def test_each_token_of_a_prompt_is_scored_once_and_rows_never_lack(
    asked: list[tuple[int, bool]], data: st.DataObject
) -> None:
    """Also after preemptions; a row of logits is that of the token before."""
    limits = Limits(
        vocab_size=VOCABULARY,
        max_context=64,
        max_running=data.draw(st.integers(1, 5)),
        chunk=data.draw(st.integers(1, 24)),
        buckets=(1, 2, 4, 8),
        draft_tokens=0,
    )
    cache = Cache(PageAllocator(data.draw(st.integers(16, 30)), 4), share=True)
    made = Scheduler(limits, [cache], lambda request, limit: Sequence(request, limit, Random(0)))
    requests = {}
    for number, (size, wanted) in enumerate(asked):
        tokens = [(number + place) % VOCABULARY for place in range(size)]
        request = Generate(
            str(number), tokens, 6, temperature=0, logprobs=0, prompt_logprobs=wanted
        )
        requests[request.rid] = request
        assert made.add(request) is None
    told: dict[str, list[TokenLogprob]] = {rid: [] for rid in requests}
    while not made.idle:
        scheduled = made.next()
        plan = decode_plan(encode_plan(scheduled.plan))
        rows = [
            token
            for segment in plan.segments
            for token in (
                segment.tokens if segment.scored else segment.tokens[-1:] if segment.logits else ()
            )
        ]
        assert len(plan.segments) > 0
        assert len(rows) <= limits.logit_rows
        # The token after t is t + 1 for certain.
        logits = np.full((limits.logit_rows, VOCABULARY), -50.0)
        if plan.decoding:
            logits = np.full((max(plan.rows, limits.logit_rows), VOCABULARY), -50.0)
        for place, token in enumerate(rows):
            logits[place, (token + 1) % VOCABULARY] = 0
        for news in score_prompts(logits, scheduled):
            told[news.rid] += news.prompt_logprobs or []
        made.commit(scheduled, sample(logits, scheduled.sampled, scheduled.plan.logit_begins))
    assert not made.audit()
    for rid, request in requests.items():
        expected = request.tokens[1:] if request.prompt_logprobs else []
        assert [each.token for each in told[rid]] == expected
        assert all(each.logprob == pytest.approx(0, abs=1e-6) for each in told[rid])


def test_scores_are_log_probabilities() -> None:
    logits = np.random.default_rng(0).standard_normal((3, 50)).astype(np.float32) * 4
    wanted = torch.from_numpy(logits).double().log_softmax(-1)
    for row, each in zip(wanted, score(logits, [3, 0, 49], 3), strict=True):
        assert each.logprob == pytest.approx(float(row[each.token]), abs=1e-6)
        assert [token for token, _ in each.top] == row.topk(3).indices.tolist()


def test_kernels_compute_the_same_rows_of_logits() -> None:
    pages = np.arange(1, 4, dtype=np.int32).tobytes()
    segments = [
        Segment([5], 7, pages),
        Segment([1, 2, 3], 0, pages, logits=False, scored=True),
        Segment([4, 5], 0, pages, logits=False),
        Segment([6, 7, 8], 3, pages, scored=True),
        Segment([9, 8], 0, pages),
    ]
    plan = Plan(Work.MIXED, segments, rows=1, decodes=1)
    rows = build_batch(plan, 4, torch.device("cpu")).logit_rows
    wanted = [0, 1, 2, 3, 6, 7, 8, 10]
    assert rows is not None
    assert rows.tolist() == wanted
    assert lay_out(plan, Paper(4, 64, 1), 1).wanted.tolist() == wanted
    assert plan.prefill_begins == [1, 4, 4, 7]
    assert plan.logit_begins == [0, 6, 7]
