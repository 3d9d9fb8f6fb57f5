"""Cycles of a draft head by kernels, in Triton's interpreter, against plain torch."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from msgspec import structs

from tests.kernels import interpreting  # noqa: F401

# isort: split
from panel.kernels.draft_follow import Course
from panel.kernels.draft_places import Ring, Rows, draft_places, keep_features
from panel.server.cuda import forward as captured_forward
from panel.server.cuda import head as captured_head
from panel.server.cuda.cycle import Cycle
from panel.server.cuda.forward import Captured
from panel.server.cuda.head import KernelHead
from panel.server.cuda.layout import Layout, Paper
from panel.server.cuda.sampler import Landing
from panel.server.cuda.target import KernelTarget
from panel.server.cuda.turn import Where
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
from tests.server.speculative.cycles import STEPS, Text, cycles
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


def go_on(head: KernelHead, plan: Plan, later: Plan) -> bool:
    """Let the head draft before the next plan; return whether those are the drafts that it wants.

    What was drafted is what the text goes on with, as far as it was drafted, and then something
    else than was sampled.
    """
    seats = {segment.seat: segment for segment in later.decoding}
    sampled = torch.full((plan.rows, plan.width), 2)
    head.drafts.fill_(1)
    for row, segment in enumerate(plan.decoding):
        fresh = torch.tensor(seats[segment.seat].fresh, dtype=torch.int64)
        sampled[row, : len(fresh)] = head.drafts[row, : len(fresh)] = fresh
        sampled[row, len(fresh)] = seats[segment.seat].tokens[0]
    head.go_on(sampled.view(-1), Landing(sampled.view(-1), sampled.numel(), 0, None))
    if later.work is not Work.DECODE or later.width == 1:
        return False
    after = Cycle.of(later, list(range(len(later.decoding))))
    before = Cycle.of(plan, list(range(len(plan.decoding))))
    return before.goes_on(after, sampled.numpy(), PAGE)


@pytest.mark.usefixtures("apart")
@pytest.mark.parametrize(
    ("changed", "ahead"),
    [
        ({"draft_vocab_size": 512}, True),
        ({"norm_before_residual": True, "own_embedding": True}, False),
    ],
)
def test_cycles_are_those_of_the_plain_path(
    changed: dict[str, Any], ahead: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    family, shape = SHAPES["v3-tied"]
    target = make_checkpoint(tmp_path / "model", family, shape | SMALL)
    head = make_head(tmp_path / "head", target, **FEW_HEADS, **changed)
    plain, ours = plain_of(head), by_kernels(plain_of(head))
    plain.cache.zero_()
    places, kernels = plain.places, ours.kernels
    assert kernels is not None
    begun: list[int] = []
    begin = KernelHead._begin

    def counted(head: KernelHead, rows: int, where: Where) -> None:
        begun.append(rows)
        begin(head, rows, where)

    monkeypatch.setattr(KernelHead, "_begin", counted)
    plans, expected = cycles(head)
    compared = gone_on = 0
    expects = False
    with torch.inference_mode():
        for number, (plan, wanted) in enumerate(zip(plans, expected, strict=True)):
            before = len(begun)
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
            if kernels.turn is not None:
                assert len(begun) - before == (not expects)
                gone_on += expects
            expects = False
            if ahead and kernels.turn is not None and number + 1 < len(plans):
                expects = go_on(kernels, plan, plans[number + 1])
    assert compared >= 5
    assert gone_on == (2 if ahead else 0)
    assert ours.features[0].eq(0).all()


class Recorded:
    """What runs in place of a captured graph."""

    def __init__(self, run: Callable[[], torch.Tensor | None], pool: object) -> None:
        self._run, self.result = run, run()
        self.replays = 0

    def replay(self) -> None:
        self.replays += 1
        found = self._run()
        if found is not None and self.result is not None:
            self.result.copy_(found)

    def pool(self) -> None:
        return None


@pytest.mark.usefixtures("apart")
def test_a_cycle_foreseen_is_verified_as_it_lies(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """By graphs, of which the host fills none where it need not."""

    def record(
        run: Callable[[], torch.Tensor | None], pool: object
    ) -> tuple[Recorded, torch.Tensor | None]:
        recorded = Recorded(run, pool)
        return recorded, recorded.result

    monkeypatch.setattr(captured_forward, "capture", record)
    monkeypatch.setattr(captured_head, "capture", record)
    family, shape = SHAPES["v3-tied"]
    target = make_checkpoint(tmp_path / "model", family, shape | SMALL)
    head = make_head(tmp_path / "head", target, **FEW_HEADS)
    plain, ours = plain_of(head), eagle_of(head)
    plain.cache.zero_()
    assert isinstance(ours.target, KernelTarget)
    verifier = replace(ours.target.kernels, paper=PAPER)
    aux, verifies = verifier.stack.aux, KernelTarget(verifier)
    assert aux is not None
    kernels = KernelHead.of(
        ours.draft,
        ours.cache,
        ours.features,
        aux,
        ours.places,
        PAPER,
        sequences=16,
        target=verifies,
    )
    ours = replace(ours, target=verifies, kernels=kernels)
    filled: list[object] = []
    fill = Captured.fill

    def counted(captured: Captured, layout: Layout) -> None:
        filled.append(layout)
        fill(captured, layout)

    monkeypatch.setattr(Captured, "fill", counted)
    text = Text([3, 1, 4, 1, 5], [2, 1], seat=0)

    def step(plan: Plan) -> list[int]:
        """Run it both ways; return what was drafted."""
        wanted, found = (each(plan, poisoned=False)[0] for each in (plain, ours))
        torch.testing.assert_close(found, wanted, atol=1e-4, rtol=0)
        drafts: list[int] = plain.told[0].tolist()
        assert plan.width == 1 or ours.told[0].tolist() == drafts
        return drafts

    with torch.inference_mode():
        ours.prepare(1, PAPER.width)
        filled.clear()
        drafted = kernels.graphs[1].draft
        assert isinstance(drafted, Recorded)
        before, cycles = drafted.replays, ours.spent.cycles
        step(Plan(Work.PREFILL, [text.segment(5)]))
        text.computed = text.drafted = 5
        text.tokens.append(8)
        plans = [Plan(Work.DECODE, [text.cycle(STEPS)], rows=1, width=1 + STEPS, extends=True)]
        drafts = step(plans[0])
        text.drafted, text.computed = 6, 8
        text.tokens += [*drafts[:2], 77]
        plans.append(structs.replace(plans[0], segments=[text.cycle(STEPS)]))
        assert go_on(kernels, *plans)
        step(plans[1])
    assert not filled
    assert ours.spent.foreseen == ours.spent.cycles - cycles == 2
    assert drafted.replays - before == 2


def test_the_places_are_what_the_plain_path_looks_up() -> None:
    places = Places(pages=40, recent=8, page_size=PAGE)
    segments = [
        Segment([7, 0, 0], 3 * PAGE + 1, np.array([5, 9, 2, 8], np.int32).tobytes(), seat=2,
                fresh=[4, 6, 1]),
        Segment([3, 0], PAGE - 1, np.array([11, 12], np.int32).tobytes(), seat=0),
    ]  # fmt: skip
    plan = Plan(Work.DECODE, segments, rows=4, width=3, extends=True)
    cycle = Cycle.of(plan, [0, 1])
    arrays = {**cycle.asked(), **cycle.course(4)}
    course = Course(**{name: torch.from_numpy(array) for name, array in arrays.items()})
    table = torch.from_numpy(cycle.table())
    ring = Ring(places.pages, places.recent, PAGE, PAPER.context)
    found = Rows.of(4, 4, torch.device("cpu"))
    draft_places(course, table, ring, found)
    seen = Seen(places, segments, [], 4, 4)
    shown, kept = seen.fresh(), seen.kept()
    rows = [(age, 0) for age in (3, 2, 1, 0)] + [(0, 1)]
    for array, wanted in (
        (course.tokens, shown.tokens),
        (found.positions, shown.positions),
        (found.slots, shown.slots),
        (found.before, shown.places),
    ):
        assert [int(array.view(-1, 4)[row]) for row in rows] == wanted.tolist()
    assert found.lengths[:, 0].tolist() == [3 * PAGE + 2 + step for step in range(3)]
    assert found.slots.view(-1, 4)[:4, 2:].eq(0).all()
    features = torch.zeros(40 + 3 * 8, 1)
    keep_features(torch.arange(1.0, 17)[:, None], course, table, ring, features)
    assert {row: int(place) for row, place in enumerate(features[:, 0].tolist()) if place} == {
        place: 1 + row for row, place in zip(kept.rows.tolist(), kept.places.tolist(), strict=True)
    }
