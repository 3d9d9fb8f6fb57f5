"""Ranks that compute by kernels in step: rank 0's device samples, one step ahead of the host."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest
import torch

from tests.kernels import interpreting  # noqa: F401

# isort: split
from panel.kernels.expert_plan import MEASURED, Plans
from panel.kernels.router import Routing
from panel.server.cuda.plans import keep_plans, plans_file
from panel.server.messages import Generate, Rebalance
from panel.server.schedule import NOT_FINITE
from tests.kernels.test_experts import Shape, weights_of
from tests.kernels.test_stack import SMALL
from tests.server.checkpoints import SHAPES, Checkpoint, agreement, make_checkpoint
from tests.server.support import Nursery, wait_until

TINY = SMALL | {
    # Two ranks cannot split it evenly.
    "vocab_size": 63,
    "hidden_size": 32,
    "intermediate_size": 32,
    "num_attention_heads": 2,
    "num_key_value_heads": 2,
    "n_routed_experts": 4,
    "num_experts_per_tok": 2,
    "moe_intermediate_size": 16,
}
PROMPTS = [[3, 1, 4, 1, 5], [9, 2, 6]]
LIMITS = {"max_running_requests": 2, "context_length": 32, "chunked_prefill_size": 8}
ONE: dict[str, object] = {"tp_size": 1, "disable_cuda_graph": True}
TWO: dict[str, object] = {"tp_size": 2, "allreduce_backend": "gloo", "cuda_graph_bs": 2}
OWN = TWO | {"ep_size": 2, "moe_a2a_backend": "gloo", "dp_attention": True}
TOKENS = 4


@pytest.fixture(scope="module")
def kernels(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Nursery]:
    """Ranks that find tuned plans where two of them have half of the experts each."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("XDG_CACHE_HOME", str(tmp_path_factory.mktemp("cache")))
        half, routing = Shape(hidden=32, columns=16, shared=8, slots=2), Routing(4, 2)
        plans = Plans({2: replace(MEASURED[2], parts=1, last_adds=False)})
        keep_plans(plans_file(), weights_of(routing, half, torch.float32), routing, plans)
        nursery = Nursery("tests.kernels.nursery")
    yield nursery
    nursery.close()


@pytest.fixture(scope="module")
def reference(tmp_path_factory: pytest.TempPathFactory) -> Checkpoint:
    family, shape = SHAPES["v3-tied"]
    return make_checkpoint(tmp_path_factory.mktemp("model"), family, shape | TINY)


def requests(logprobs: int | None) -> list[Generate]:
    """Return a greedy request and a sampled one."""
    return [
        Generate(f"{logprobs} {n}", prompt, TOKENS, temperature=n, seed=7, logprobs=logprobs)
        for n, prompt in enumerate(PROMPTS)
    ]


@pytest.fixture(scope="module")
def expected(
    kernels: Nursery, reference: Checkpoint, tmp_path_factory: pytest.TempPathFactory
) -> list[list[int]]:
    """Return what a single rank answers."""
    folder = tmp_path_factory.mktemp("one")
    with kernels.gang(folder, model_path=reference.folder, **ONE, **LIMITS) as gang:
        gang.wait_started()
        texts = [answer.tokens for answer in gang.generate(*requests(None))]
    assert agreement(reference, PROMPTS[0], texts[0]) == (TOKENS, True)
    return texts


@pytest.mark.parametrize(
    ("split", "asked"),
    [(TWO | {"ep_size": 2}, (None, 1)), (OWN, (None,))],
    ids=["vocabulary", "requests"],
)
def test_two_ranks_answer_as_one_and_as_the_host(
    split: dict[str, object],
    asked: tuple[int | None, ...],
    kernels: Nursery,
    reference: Checkpoint,
    expected: list[list[int]],
    tmp_path: Path,
) -> None:
    with kernels.gang(tmp_path, model_path=reference.folder, **split, **LIMITS) as gang:
        gang.wait_started()
        for logprobs in asked:
            answers = gang.generate(*requests(logprobs))
            assert [answer.tokens for answer in answers] == expected
            gang.send(Rebalance())
        assert set(gang.terminate().values()) == {0}
        logs = [gang.log(f"rank-{rank}") for rank in range(2)]
    assert all("plans of the experts are those in" in log for log in logs) == (split is not OWN)
    log = logs[1]
    moved = [int(count) for count in re.findall(r"(\d+) experts moved", log)]
    assert len(moved) == len(asked)
    assert moved[0] > 0
    # The first one is the warm-up's. A prompt each or both at once; then one ahead, but for those
    # that the host samples.
    _, *joined = [line.rpartition("joins ")[2] for line in log.splitlines() if "joins" in line]
    assert joined.count("a step with 2 unknown tokens") >= TOKENS - 2
    assert TOKENS <= len(joined) <= TOKENS + 1


def test_nan_is_traced_to_its_rank_after_its_step_has_landed(
    kernels: Nursery, reference: Checkpoint, tmp_path: Path
) -> None:
    fault = "rank=1,phase=serving,kind=nan,after=0"
    flags = {"model_path": reference.folder, "fault": fault}
    with kernels.gang(tmp_path, **flags, **TWO, **LIMITS) as gang:
        gang.wait_started()
        answer, _ = gang.generate(*requests(None))
        assert answer.last.error == NOT_FINITE
        traced = "first not finite in layer 0, attention, on rank 1"
        wait_until(lambda: traced in gang.log("rank-0"))
        assert set(gang.terminate().values()) == {0}
