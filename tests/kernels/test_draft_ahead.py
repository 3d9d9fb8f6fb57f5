"""Whole texts by cycles of kernels, in Triton's interpreter: the head may go on before the host."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from random import Random

import pytest
import torch

from tests.kernels import interpreting  # noqa: F401

# isort: split
from panel.server.cache import Cache
from panel.server.cuda.ahead import AheadSampler
from panel.server.cuda.head import KernelHead
from panel.server.cuda.sampler import KernelSampler
from panel.server.cuda.turn import Where
from panel.server.draft.forward import EagleForward
from panel.server.draft.target import TorchTarget
from panel.server.flight import DeviceSampler, chosen
from panel.server.messages import Generate
from panel.server.options import resolve
from panel.server.pages import PageAllocator
from panel.server.plan import Work
from panel.server.schedule import Limits
from panel.server.scheduler import Scheduler
from panel.server.sequence import Sequence
from panel.server.simulated import acceptance, following
from tests.kernels.test_draft_head import FEW_HEADS, PAPER, plain_of
from tests.kernels.test_draft_target import apart
from tests.kernels.test_stack import PAGES, SMALL
from tests.server.checkpoints import SHAPES, make_checkpoint
from tests.server.plans import PAGE
from tests.server.speculative.cycles import STEPS
from tests.server.speculative.heads import Head, make_head

__all__ = ["apart"]

RATE = 0.7
REQUESTS = [
    (0, Generate("first", list(range(40, 53)), 22, temperature=0)),
    (0, Generate("short", [7, 8], 6, temperature=0)),
    (3, Generate("drawn", [5, 6, 7, 8], 12, temperature=0.9, top_k=9, seed=4)),
]
"""The step at which each comes, and what it asks for."""


def engine_of(head: Head) -> tuple[EagleForward, KernelHead, KernelSampler]:
    forward = plain_of(head)
    assert isinstance(forward.target, TorchTarget)
    aux = forward.target.aux
    assert aux is not None
    kernels = KernelHead.of(
        forward.draft,
        forward.cache,
        forward.features,
        aux,
        forward.places,
        PAPER,
        sequences=16,
        rate=RATE,
    )
    sampler = KernelSampler.into(torch.zeros(64, dtype=torch.int64))
    sampler = replace(sampler, drafts=kernels.drafts)
    return replace(forward, kernels=kernels, tells=False), kernels, sampler


def texts(forward: EagleForward, sampler: DeviceSampler, pages: int) -> dict[str, list[int]]:
    """Return what becomes of the requests, as the leader runs them."""
    flags = {"model-path": "", "speculative-algorithm": "eagle3"}
    follow = following(acceptance(resolve(flags | {"speculative-simulate-acceptance": str(RATE)})))
    limits = Limits(512, 400, 4, 64, (1, 2, 4), STEPS, head=True, adaptive=False)
    scheduler = Scheduler(
        limits,
        [Cache(PageAllocator(pages, PAGE), share=False)],
        lambda request, limit: Sequence(request, limit, Random(request.seed), drafted=0),
    )
    for rows in (1, 2, 4):
        for _ in range(8):
            scheduler.drafter.pace.learn(rows, 1, 1.0)
    found: dict[str, list[int]] = {request.rid: [] for _, request in REQUESTS}
    step = 0
    while not scheduler.idle or not step:
        for at, request in REQUESTS:
            if at == step:
                assert scheduler.add(request) is None
        step += 1
        scheduled = scheduler.next()
        plan = scheduled.plan
        logits, _ = forward(plan, poisoned=False)
        landed = sampler.sample(logits, scheduled.sampled, plan.width).land()
        if plan.work is Work.DECODE and plan.width > 1:
            scheduler.drafter.reveal(scheduled.sequences, landed.drafts)
        choices = chosen(landed, plan, scheduled.sampled, follow)
        for news in scheduler.commit(scheduled, choices):
            found[news.rid] += news.tokens
    assert scheduler.audit() == []
    return found


@pytest.mark.usefixtures("apart")
def test_texts_are_the_same_whether_or_not_the_head_goes_on_by_itself(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Acceptance is simulated, so that drafts are part of the text."""
    family, shape = SHAPES["v3-tied"]
    target = make_checkpoint(tmp_path / "model", family, shape | SMALL)
    head = make_head(tmp_path / "head", target, **FEW_HEADS, draft_vocab_size=512)
    begun: list[int] = []
    begin = KernelHead._begin

    def counted(kernels: KernelHead, rows: int, where: Where) -> None:
        begun.append(rows)
        begin(kernels, rows, where)

    monkeypatch.setattr(KernelHead, "_begin", counted)
    with torch.inference_mode():
        forward, _, sampler = engine_of(head)
        wanted = texts(forward, sampler, PAGES - 1)
        cycles = len(begun)
        forward, kernels, sampler = engine_of(head)
        begun.clear()
        found = texts(forward, AheadSampler(sampler, kernels), PAGES - 1)
    assert [len(wanted[request.rid]) for _, request in REQUESTS] == [22, 6, 12]
    assert found == wanted
    # Each cycle is drafted once, and once in vain where another plan came than was foreseen.
    assert cycles < len(begun) <= cycles + 5
