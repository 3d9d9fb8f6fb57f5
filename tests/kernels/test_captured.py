"""Decode steps that are replayed: what a graph reads and gives, without a GPU to capture it."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path

import pytest
import torch
from msgspec import structs

from tests.kernels import interpreting  # noqa: F401

# isort: split
from panel.server.cuda import forward as module
from panel.server.reduction import Alone
from tests.kernels.test_ranks import TINY
from tests.kernels.test_stack import apart, forward_of, wanted_rows
from tests.server.checkpoints import SHAPES, make_checkpoint
from tests.server.plans import expected, steps

__all__ = ["apart"]
TEXTS = [[3, 1, 4, 1, 5, 9, 2], list(range(20, 29))]


@dataclass
class Graph:
    """Runs again what was captured, into the same memory."""

    run: Callable[[], torch.Tensor]
    result: torch.Tensor
    replays: int = 0

    def replay(self) -> None:
        self.result.copy_(self.run())
        self.replays += 1

    def pool(self) -> None:
        return None


@pytest.fixture
def replayed(monkeypatch: pytest.MonkeyPatch) -> list[Graph]:
    """Return the graphs that are captured."""
    graphs: list[Graph] = []

    def capture(run: Callable[[], torch.Tensor], pool: None) -> tuple[Graph, torch.Tensor]:
        graphs.append(Graph(run, run()))
        return graphs[-1], graphs[-1].result

    monkeypatch.setattr(module, "capture", capture)
    return graphs


@pytest.mark.usefixtures("apart")
def test_decode_steps_are_replayed_and_all_others_launched(
    replayed: list[Graph], tmp_path: Path
) -> None:
    family, shape = SHAPES["v3-tied"]
    reference = make_checkpoint(tmp_path, family, shape | TINY)
    forward = forward_of(reference.folder)
    plans = steps(TEXTS, chunk=16)
    # The drafts of a step may be fewer than those of its graph.
    plans = [structs.replace(plan, width=3) if plan.width == 4 else plan for plan in plans]
    for width in (4, 1):
        forward.prepare(len(TEXTS) + 1, width)
    answers = [forward(plan, poisoned=False)[0][wanted_rows(plan)].clone() for plan in plans]
    for logits, wanted in zip(answers, expected(reference, TEXTS), strict=True):
        torch.testing.assert_close(logits, wanted, atol=1e-4, rtol=0)
    assert [graph.replays for graph in replayed] == [1, 2]
    (decode,) = [plan for plan in plans if plan.width == 3]
    assert forward(decode, poisoned=True)[0].isnan().all()
    watched = forward.watched(forward.reduction)
    torch.testing.assert_close(watched(decode, poisoned=False)[0], answers[plans.index(decode)])
    assert [graph.replays for graph in replayed] == [1, 2]


@pytest.mark.usefixtures("apart")
@pytest.mark.parametrize("path", ["peer", "gloo", "shm", "nccl", "peer+nccl"])
def test_what_passes_through_the_host_is_not_captured(
    path: str, replayed: list[Graph], tmp_path: Path
) -> None:
    """There is no NCCL here, so that its sums would pass through the host too."""
    family, shape = SHAPES["v3-tied"]
    make_checkpoint(tmp_path, family, shape | TINY)
    forward = forward_of(tmp_path)
    reduction = Alone(torch.empty(8, 32))
    reduction.path = path
    stack = replace(forward.stack, reduction=reduction)
    replace(forward, stack=stack).prepare(1, 1)
    assert len(replayed) == len(forward.graphs) == (path == "peer")
