"""What must not change the text: chunks, batch mates, drafts, full caches."""

from __future__ import annotations

import random
from collections.abc import Sequence
from pathlib import Path

import pytest

from panel.server.messages import Abort, Drain, Generate
from tests.server.checkpoints import Checkpoint, Checkpoints, agreement
from tests.server.support import Answer, Gang, Nursery


def prompt(number: int, size: int) -> list[int]:
    numbers = random.Random(number)
    return [numbers.randrange(512) for _ in range(size)]


def greedy(name: str, tokens: list[int], count: int = 24) -> Generate:
    return Generate(name, tokens, max_new_tokens=count, temperature=0)


def check(reference: Checkpoint, requests: Sequence[Generate], answers: Sequence[Answer]) -> None:
    """Every answer is the reference's text, as far as that can be compared."""
    compared = total = 0
    for request, answer in zip(requests, answers, strict=True):
        assert answer.last.finish == "length"
        assert len(answer.tokens) == request.max_new_tokens
        count, same = agreement(reference, request.tokens, answer.tokens)
        assert same
        compared += count
        total += len(answer.tokens)
    print(f"compared {compared} of {total} positions")
    assert compared >= 0.95 * total


@pytest.fixture
def tied(checkpoints: Checkpoints) -> Checkpoint:
    return checkpoints["v3-tied"]


@pytest.mark.parametrize("chunk", [16, 512])
def test_a_prompt_in_chunks_is_the_whole_prompt(
    chunk: int, tied: Checkpoint, nursery: Nursery, tmp_path: Path
) -> None:
    requests = [greedy(str(size), prompt(size, size)) for size in (15, 16, 17, 100)]
    with nursery.gang(
        tmp_path, model_path=tied.folder, tp_size=2, chunked_prefill_size=chunk
    ) as gang:
        gang.wait_started()
        check(tied, requests, gang.generate(*requests))


def test_a_full_cache_preempts_and_the_text_stays(
    tied: Checkpoint, nursery: Nursery, tmp_path: Path
) -> None:
    requests = [greedy(str(n), prompt(n, 20), 40) for n in range(6)]
    with nursery.gang(
        tmp_path, model_path=tied.folder, tp_size=2, max_total_tokens=128, page_size=8
    ) as gang:
        assert gang.wait_started().max_total_tokens == 128
        check(tied, requests, gang.generate(*requests))
        stats = gang.wait_stats()
        assert stats.preemptions > 0
        assert stats.kv_used == 0


def test_drafts_change_speed_but_not_text(
    tied: Checkpoint, nursery: Nursery, tmp_path: Path
) -> None:
    repetitive = prompt(1, 6) * 8
    requests = [greedy("r", repetitive, 60), greedy("x", prompt(3, 30), 60)]
    with nursery.gang(
        tmp_path, model_path=tied.folder, tp_size=2, speculative_algorithm="ngram"
    ) as gang:
        gang.wait_started()
        check(tied, requests, gang.generate(*requests))
        stats = gang.wait_stats()
    assert stats.spec_accepted_tokens > 0
    assert stats.spec_accepted_per_position == sorted(
        stats.spec_accepted_per_position, reverse=True
    )
    assert sum(stats.spec_accepted_per_position) == stats.spec_accepted_tokens
    assert stats.steps < stats.generated_tokens


@pytest.fixture
def pair(tied: Checkpoint, nursery: Nursery, tmp_path: Path) -> Gang:
    with nursery.gang(tmp_path, model_path=tied.folder, tp_size=2, context_length=128) as gang:
        gang.wait_started()
        yield gang


def test_a_seed_decides_whatever_runs_beside(pair: Gang) -> None:
    def sampled(name: str, seed: int | None) -> Generate:
        return Generate(name, prompt(5, 9), 20, temperature=1.0, top_p=0.9, seed=seed)

    alone = pair.generate(sampled("alone", 7))[0].tokens
    mixed = pair.generate(
        sampled("mixed", 7), greedy("other", prompt(6, 33)), sampled("third", None)
    )
    assert mixed[0].tokens == alone
    assert mixed[2].tokens != alone


def test_stop_tokens_and_limits_end_an_answer(pair: Gang) -> None:
    whole = pair.generate(greedy("whole", prompt(8, 10), 30))[0].tokens
    stop = whole[12]
    stopped = pair.generate(Generate("stop", prompt(8, 10), 30, temperature=0, stop_tokens=[stop]))[
        0
    ]
    assert stopped.last.finish == "stop"
    assert stopped.tokens == whole[: whole.index(stop) + 1]
    longest = pair.generate(greedy("longest", prompt(9, 100), 500))[0]
    assert longest.last.finish == "length"
    assert len(longest.tokens) == 28


@pytest.mark.parametrize(
    ("request_", "reason"),
    [
        (Generate("a", [1] * 128, 5), "128 tokens"),
        (Generate("b", [], 5), "empty"),
        (Generate("c", [512], 5), "0 to 511"),
        (Generate("d", [-1], 5), "0 to 511"),
        (Generate("e", [1], 0), "max_new_tokens"),
    ],
)
def test_impossible_requests_are_refused_with_the_reason(
    request_: Generate, reason: str, pair: Gang
) -> None:
    last = pair.generate(request_)[0].last
    assert last.finish == "error"
    assert reason in (last.error or "")
    check_alive = pair.generate(greedy("after", prompt(1, 4), 3))[0]
    assert len(check_alive.tokens) == 3


def test_abort_ends_one_request_and_frees_its_cache(pair: Gang) -> None:
    pair.send(greedy("long", prompt(2, 8), 110))
    pair.send(greedy("short", prompt(3, 8), 10))
    pair.send(Abort("long"))
    long, short = pair.collect("long", "short")
    assert long.last.finish == "abort"
    assert short.last.finish == "length"
    assert pair.wait_stats().kv_used == 0


def test_drain_finishes_what_runs_and_ends_every_rank_with_0(pair: Gang) -> None:
    pair.send(greedy("running", prompt(2, 8), 100))
    pair.send(Drain(30.0))
    pair.send(greedy("late", prompt(2, 8), 5))
    running, late = pair.collect("running", "late")
    assert running.last.finish == "length"
    assert late.last.finish == "error"
    assert set(pair.wait_exits().values()) == {0}
    assert "draining" in pair.log("rank-1")


def test_padding_to_a_bucket_changes_nothing(
    tied: Checkpoint, nursery: Nursery, tmp_path: Path
) -> None:
    requests = [greedy(str(n), prompt(n, 12)) for n in range(3)]
    with nursery.gang(
        tmp_path,
        model_path=tied.folder,
        tp_size=2,
        cuda_graph_bs="8",
        speculative_algorithm="ngram",
    ) as gang:
        assert gang.wait_started().buckets == [8]
        check(tied, requests, gang.generate(*requests))


def test_dummy_weights_are_the_same_for_every_split(
    tied: Checkpoint, nursery: Nursery, tmp_path: Path
) -> None:
    texts = []
    for ranks, groups in ((1, 1), (4, 4)):
        with nursery.gang(
            tmp_path, model_path=tied.folder, tp_size=ranks, ep_size=groups, load_format="dummy"
        ) as gang:
            gang.wait_started()
            texts.append(gang.generate(greedy("x", prompt(4, 20)))[0].tokens)
    assert texts[0] == texts[1]
