"""The engine against transformers on the same weights."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch

from panel.server.messages import Generate
from tests.server.checkpoints import Checkpoint, Checkpoints, agreement
from tests.server.plans import TEXTS, expected, steps
from tests.server.ranks import Outcome, Ranks
from tests.server.support import Nursery

STEPPED: dict[str, object] = {"disable_cuda_graph": True, "speculative_algorithm": "ngram"}

SPLITS: list[tuple[str, dict[str, object]]] = [
    ("v3-tied", {"tp_size": 1}),
    ("v3-tied", {"tp_size": 8, "ep_size": 8}),
    ("v3-low-rank-groups", {"tp_size": 2}),
    ("v3-low-rank-groups", {"tp_size": 4, "ep_size": 2}),
    ("v3-factored-halves-yarn", {"tp_size": 1}),
    ("v3-factored-halves-yarn", {"tp_size": 8}),
    ("v3-apart", {"tp_size": 1}),
    ("v3-apart", {"tp_size": 4, "ep_size": 4}),
    ("v2-lite-yarn", {"tp_size": 1}),
    ("v2-lite-yarn", {"tp_size": 8, "ep_size": 4}),
    ("v2-groups-bias", {"tp_size": 2}),
    ("v2-groups-bias", {"tp_size": 4, "ep_size": 4}),
    ("qwen3", {"tp_size": 1}),
    ("qwen3", {"tp_size": 8}),
    ("qwen3", {"tp_size": 4, "ep_size": 2}),
    ("qwen3-bias-sparse", {"tp_size": 2, "ep_size": 2}),
    ("qwen3-bias-sparse", {"tp_size": 4}),
    ("v3-tied", {"tp_size": 8, "ep_size": 8, "shared_experts_tp": "replicated"}),
    ("v3-low-rank-groups", {"tp_size": 8, "ep_size": 8, "moe_a2a_backend": "shm"}),
    (
        "v2-groups-bias",
        {"tp_size": 4, "ep_size": 4, "moe_a2a_backend": "shm", "shared_experts_tp": "replicated"},
    ),
    ("qwen3", {"tp_size": 2, "ep_size": 2, "moe_a2a_backend": "gloo"}),
]


def assert_equal(outcome: Outcome, reference: Checkpoint) -> None:
    """Compare the logits of `steps` with the reference's."""
    found = [logits for logits in outcome.logits if logits.shape[0]]
    wanted = expected(reference)
    assert len(found) == len(wanted)
    for one, other in zip(found, wanted, strict=True):
        torch.testing.assert_close(one, other, atol=1e-4, rtol=0)


def assert_predicted(outcome: Outcome) -> None:
    """Compare what ranks measured with what was known before."""
    for memory in outcome.memory:
        measured = {name: memory.measured[name] for name in memory.predicted}
        assert measured == memory.predicted
        assert min(measured["weights"], measured["workspace"], measured["kv_cache"]) > 0


@pytest.mark.parametrize(("shape", "flags"), SPLITS)
def test_logits_are_those_of_transformers(
    shape: str, flags: dict[str, object], checkpoints: Checkpoints, ranks: Ranks
) -> None:
    reference = checkpoints[shape]
    outcome = ranks.run(*steps(), model_path=reference.folder, **STEPPED, **flags)
    assert_equal(outcome, reference)
    assert_predicted(outcome)


@pytest.mark.parametrize("shape", ["v3-factored-halves-yarn", "v3-tied", "qwen3"])
def test_a_whole_prefill_gives_the_same_logits(
    shape: str, checkpoints: Checkpoints, ranks: Ranks
) -> None:
    reference = checkpoints[shape]
    flags = STEPPED | {"model_path": reference.folder, "tp_size": 2}
    assert_equal(ranks.run(*steps(chunk=200), **flags), reference)


OWNED: list[tuple[str, int, list[int], str]] = [
    ("v3-tied", 2, [0, 1, 1, 0], "shm"),
    # Ranks 1, 2 and 4 to 7 never own anything.
    ("v3-low-rank-groups", 8, [3, 3, 3, 0], "shm"),
    ("v3-factored-halves-yarn", 4, [0, 1, 2, 3], "shm"),
    ("v2-lite-yarn", 8, [7, 6, 5, 4], "shm"),
    ("qwen3-bias-sparse", 4, [2, 0, 2, 1], "shm"),
    ("qwen3", 2, [1, 1, 0, 0], "gloo"),
]


@pytest.mark.parametrize(("shape", "ranks_count", "owners", "path"), OWNED)
def test_ranks_that_own_requests_find_the_same_logits(
    shape: str,
    ranks_count: int,
    owners: list[int],
    path: str,
    checkpoints: Checkpoints,
    ranks: Ranks,
) -> None:
    reference = checkpoints[shape]
    outcome = ranks.run(
        *steps(owners=owners),
        model_path=reference.folder,
        tp_size=ranks_count,
        ep_size=ranks_count,
        moe_a2a_backend=path,
        dp_attention=True,
        **STEPPED,
    )
    assert_equal(outcome, reference)
    assert_predicted(outcome)


TEXT_SPLITS = [("v3-tied", 8, 8), ("v2-lite-yarn", 2, 1), ("qwen3", 4, 1)]


@pytest.mark.parametrize(("shape", "tp_size", "ep_size"), TEXT_SPLITS)
def test_greedy_text_is_that_of_transformers(
    shape: str,
    tp_size: int,
    ep_size: int,
    checkpoints: Checkpoints,
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
                for n, prompt in enumerate(TEXTS)
            )
        )
        assert set(gang.terminate().values()) == {0}
    compared = 0
    for prompt, answer in zip(TEXTS, answers, strict=True):
        assert answer.last.finish == "length"
        count, same = agreement(reference, prompt, answer.tokens)
        assert same
        compared += count
        expected_rows = reference.logits(prompt + answer.tokens[:-1])[len(prompt) - 1 :]
        logprobs = expected_rows.log_softmax(-1)
        found = [entry for piece in answer.pieces for entry in piece.logprobs or []]
        for row, entry in zip(logprobs[:count], found, strict=False):
            for token, value in [(entry.token, entry.logprob), *entry.top]:
                assert value == pytest.approx(float(row[token]), abs=2e-4)
    total = sum(len(answer.tokens) for answer in answers)
    print(f"{shape} tp {tp_size} ep {ep_size}: compared {compared} of {total} positions")
    assert compared >= 0.95 * total
