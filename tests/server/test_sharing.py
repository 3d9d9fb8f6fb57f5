"""What the cache, the queue and drafts must not change: the text of anybody."""

from __future__ import annotations

import time
from pathlib import Path

import pytest

from panel.server.messages import Flush, Flushed, Generate
from tests.server.checkpoints import Checkpoint, Checkpoints
from tests.server.support import DEADLINE, Gang, Nursery
from tests.server.test_serving import check, greedy, prompt

DP = {"tp_size": 2, "ep_size": 2, "moe_a2a_backend": "shm", "dp_attention": True}
CACHES = {
    "shared": {"tp_size": 2},
    "whole": {"tp_size": 2, "disable_prefix_cache": True},
    "of each rank": DP,
}


@pytest.fixture
def tied(checkpoints: Checkpoints) -> Checkpoint:
    return checkpoints["v3-tied"]


def turns(round_: str) -> list[Generate]:
    """Return requests of which some begin alike, in whole pages and in parts of one."""
    start = prompt(1, 50)
    prompts = [start, start[:17], [*start, *prompt(2, 30)], [*start[:40], *prompt(3, 9)]]
    return [greedy(f"{round_}{n}", tokens, 20) for n, tokens in enumerate(prompts)]


@pytest.mark.parametrize("kind", CACHES)
def test_a_remembered_beginning_does_not_change_the_text(
    kind: str, tied: Checkpoint, nursery: Nursery, tmp_path: Path
) -> None:
    with nursery.gang(tmp_path, model_path=tied.folder, page_size=8, **CACHES[kind]) as gang:
        gang.wait_started()
        for requests in (turns("one"), turns("two")):
            for request in requests:
                check(tied, [request], gang.generate(request))
        crowd = turns("crowd")
        answers = gang.generate(*crowd)
        check(tied, crowd, answers)
        cached = [answer.pieces[0].cached_tokens for answer in answers]
        if kind == "shared":
            assert cached == [48, 16, 72, 48]
        elif kind == "whole":
            assert cached == [0, 0, 0, 0]
        else:
            assert sum(cached) > 0
        stats = gang.wait_stats()
        assert (stats.cached_tokens > 0) == (kind != "whole")
        assert stats.kv_used == 0
        assert set(gang.terminate().values()) == {0}
        assert "every page is accounted for" in gang.log("rank-0")


@pytest.mark.parametrize("kind", ["shared", "of each rank"])
def test_sequences_put_back_and_begun_again_have_the_same_text(
    kind: str, tied: Checkpoint, nursery: Nursery, tmp_path: Path
) -> None:
    flags = {"max_total_tokens": 96, "page_size": 8, "speculative_algorithm": "ngram"}
    start = prompt(1, 16)
    requests = [greedy(str(n), [*start, *prompt(n, 4)], 40) for n in range(4, 10)]
    with nursery.gang(tmp_path, model_path=tied.folder, **flags, **CACHES[kind]) as gang:
        gang.wait_started()
        check(tied, requests, gang.generate(*requests))
        assert gang.wait_stats().preemptions > 0
        assert set(gang.terminate().values()) == {0}
        assert "every page is accounted for" in gang.log("rank-0")


def test_a_seed_gives_the_same_text_with_drafts_and_in_a_crowd(
    tied: Checkpoint, nursery: Nursery, tmp_path: Path
) -> None:
    def sampled(name: str) -> Generate:
        return Generate(name, prompt(5, 6) * 4, 40, temperature=0.7, top_p=0.9, seed=7)

    texts = []
    for number, drafts in enumerate(("off", "ngram")):
        folder = tmp_path / str(number)
        folder.mkdir()
        flags = {"tp_size": 2, "speculative_algorithm": drafts}
        with nursery.gang(folder, model_path=tied.folder, **flags) as gang:
            gang.wait_started()
            texts.append(gang.generate(sampled("alone"))[0].tokens)
            crowd = [sampled("mixed"), *(greedy(str(n), prompt(n, 33)) for n in range(4))]
            texts.append(gang.generate(*crowd)[0].tokens)
    assert all(text == texts[0] for text in texts)


def test_a_flush_forgets_what_nobody_uses(
    tied: Checkpoint, nursery: Nursery, tmp_path: Path
) -> None:
    def flush(gang: Gang) -> int:
        gang.send(Flush())
        until = time.monotonic() + DEADLINE
        while True:
            for message in gang.receive(until):
                if isinstance(message, Flushed):
                    return message.tokens

    with nursery.gang(tmp_path, model_path=tied.folder, tp_size=2, page_size=8) as gang:
        gang.wait_started()
        gang.generate(greedy("a", prompt(1, 24), 1))
        assert gang.wait_stats().kv_cached == 24
        assert flush(gang) == 24
        assert gang.generate(greedy("b", prompt(1, 24), 1))[0].last.cached_tokens == 0
