"""The engine against transformers on the same weights."""

from __future__ import annotations

import random
from pathlib import Path

import pytest

from panel.server.messages import Generate
from tests.server.checkpoints import Checkpoint, agreement
from tests.server.support import Nursery

PROMPTS = [
    [random.Random(number).randrange(512) for _ in range(length)]
    for number, length in enumerate((1, 7, 40, 130))
]

SPLITS = [
    ("tied", 1, 1),
    ("tied", 2, 1),
    ("tied", 8, 1),
    ("tied", 8, 8),
    ("low-rank-query-groups", 1, 1),
    ("low-rank-query-groups", 4, 2),
    ("low-rank-query-groups", 8, 8),
    ("factored-halves", 2, 2),
    ("factored-halves", 8, 1),
    ("experts-apart", 2, 1),
    ("experts-apart", 4, 4),
]


@pytest.mark.parametrize(("shape", "tp_size", "ep_size"), SPLITS)
def test_text_and_logits_are_those_of_transformers(
    shape: str,
    tp_size: int,
    ep_size: int,
    checkpoints: dict[str, Checkpoint],
    nursery: Nursery,
    tmp_path: Path,
) -> None:
    reference = checkpoints[shape]
    flags = {"model_path": reference.folder, "tp_size": tp_size, "ep_size": ep_size}
    with nursery.gang(tmp_path, chunked_prefill_size=64, **flags) as gang:
        gang.wait_started()
        answers = gang.generate(
            *(
                Generate(str(n), prompt, max_new_tokens=24, temperature=0, logprobs=8)
                for n, prompt in enumerate(PROMPTS)
            )
        )
        assert set(gang.terminate().values()) == {0}
    compared = 0
    for prompt, answer in zip(PROMPTS, answers, strict=True):
        assert answer.last.finish == "length"
        count, same = agreement(reference, prompt, answer.tokens)
        assert same
        compared += count
        expected = reference.logits(prompt + answer.tokens[:-1])[len(prompt) - 1 :].log_softmax(-1)
        found = [entry for piece in answer.pieces for entry in piece.logprobs or []]
        for row, entry in zip(expected[:count], found, strict=False):
            for token, value in [(entry.token, entry.logprob), *entry.top]:
                assert value == pytest.approx(float(row[token]), abs=2e-4)
    total = sum(len(answer.tokens) for answer in answers)
    print(f"{shape} tp {tp_size} ep {ep_size}: compared {compared} of {total} positions")
    assert compared >= 0.95 * total
