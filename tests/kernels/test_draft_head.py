"""Cycles of a draft head by kernels, in Triton's interpreter, against plain torch."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from tests.kernels import interpreting  # noqa: F401

# isort: split
from panel.server.cuda.cycle import lay_out_cycle
from panel.server.cuda.head import KernelHead
from panel.server.cuda.layout import Paper
from panel.server.cuda.target import KernelTarget
from panel.server.draft.forward import EagleForward
from panel.server.draft.places import Places
from panel.server.draft.seen import Seen
from panel.server.draft.target import TorchTarget
from panel.server.forward import TorchForward
from panel.server.plan import Plan, Segment, Work
from tests.kernels.test_draft_target import apart, eagle_of
from tests.kernels.test_stack import SMALL
from tests.server.checkpoints import SHAPES, make_checkpoint
from tests.server.plans import PAGE
from tests.server.speculative.cycles import STEPS, cycles
from tests.server.speculative.heads import Head, make_head

__all__ = ["apart"]

FEW_HEADS: dict[str, Any] = {"num_attention_heads": 4, "num_key_value_heads": 2}
PAPER = Paper(PAGE, 512, 1 + STEPS)


def plain_of(head: Head) -> EagleForward:
    """Return the model and its head, all of it operator by operator."""
    forward = eagle_of(head)
    assert isinstance(forward.target, KernelTarget)
    stack = forward.target.kernels.stack
    assert stack.aux is not None
    cache = torch.zeros_like(stack.cache)
    plain = TorchForward(stack.model, cache, stack.reduction, PAGE, None)
    return replace(forward, target=TorchTarget(plain, stack.aux))


def by_kernels(forward: EagleForward) -> EagleForward:
    assert isinstance(forward.target, TorchTarget)
    aux = forward.target.aux
    assert aux is not None
    head = KernelHead.of(
        forward.draft, forward.cache, forward.features, aux, forward.places, PAPER, sequences=16
    )
    return replace(forward, kernels=head)


@pytest.mark.usefixtures("apart")
@pytest.mark.parametrize(
    "changed", [{"draft_vocab_size": 512}, {"norm_before_residual": True, "own_embedding": True}]
)
def test_cycles_are_those_of_the_plain_path(changed: dict[str, Any], tmp_path: Path) -> None:
    family, shape = SHAPES["v3-tied"]
    target = make_checkpoint(tmp_path / "model", family, shape | SMALL)
    head = make_head(tmp_path / "head", target, **FEW_HEADS, **changed)
    plain, ours = plain_of(head), by_kernels(plain_of(head))
    plain.cache.zero_()
    places = plain.places
    compared = 0
    with torch.inference_mode():
        for plan, wanted in zip(*cycles(head), strict=True):
            logits = [forward(plan, poisoned=False)[0] for forward in (plain, ours)]
            sure = all(each.sure for each in wanted)
            for segment in plan.segments:
                end = segment.start + len(segment.tokens)
                # A draft that is not sure leaves other entries, and other features.
                known = np.arange(1, segment.start + 1 if plan.work is Work.DECODE else end)
                if plan.extends or plan.work is not Work.DECODE:
                    slots = torch.from_numpy(places.slots(segment, known))
                    torch.testing.assert_close(
                        ours.cache[slots], plain.cache[slots], atol=1e-5, rtol=0
                    )
                if sure:
                    last = torch.from_numpy(places.of(segment, np.array([end - 1])))
                    torch.testing.assert_close(
                        ours.features[last], plain.features[last], atol=1e-4, rtol=1e-4
                    )
            if plan.width > 1 and sure:
                count = len(plan.decoding)
                assert torch.equal(
                    ours.told[:count, : plan.width - 1], plain.told[:count, : plan.width - 1]
                )
                real = slice(0, count * plan.width)
                torch.testing.assert_close(logits[1][real], logits[0][real], atol=1e-4, rtol=0)
                compared += 1
    assert compared >= 5
    assert ours.features[0].eq(0).all()


def test_the_layout_is_what_the_plain_path_looks_up() -> None:
    places = Places(pages=40, recent=8, page_size=PAGE)
    segments = [
        Segment([7, 0, 0], 3 * PAGE + 1, np.array([5, 9, 2, 8], np.int32).tobytes(), seat=2,
                fresh=[4, 6, 1]),
        Segment([3, 0], PAGE - 1, np.array([11, 12], np.int32).tobytes(), seat=0),
    ]  # fmt: skip
    plan = Plan(Work.DECODE, segments, rows=4, width=3, extends=True)
    cycle = lay_out_cycle(plan, 4, 4, PAPER, places, owned=[0, 1])
    seen = Seen(places, segments, [], 4, 4)
    shown, kept = seen.fresh(), seen.kept()
    rows = [(age, 0) for age in (3, 2, 1, 0)] + [(0, 1)]
    for name, wanted in (
        ("tokens", shown.tokens),
        ("positions", shown.positions),
        ("slots", shown.slots),
        ("before", shown.places),
    ):
        array = cycle.arrays[name].reshape(-1, 4)
        assert [array[row] for row in rows] == wanted.tolist()
    ours = cycle.arrays["kept"]
    assert dict(zip(kept.rows.tolist(), kept.places.tolist(), strict=True)) == {
        row: place for row, place in enumerate(ours.tolist()) if place
    }
    assert cycle.arrays["lengths"][:, 0].tolist() == [3 * PAGE + 2 + step for step in range(3)]
    assert cycle.arrays["slots"].reshape(-1, 4)[:4, 2:].tolist() == [[0, 0]] * 4
