"""A plan through the model with a draft head: catch up, draft, verify, all in one step."""

from __future__ import annotations

import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, nullcontext
from dataclasses import dataclass, field, replace

import numpy as np
import torch
from msgspec import structs

from panel.server.batch import Batch, Span, build_batch
from panel.server.draft.model import DraftModel
from panel.server.draft.pick import Picker
from panel.server.draft.places import Places
from panel.server.forward import Forward
from panel.server.model import Model
from panel.server.plan import Plan, Segment, Work, blank_decode
from panel.server.reduction import Reduction


class Spent:
    """Time in the parts of the steps with drafts since start, on this rank."""

    def __init__(self) -> None:
        self.seconds = {"extend": 0.0, "draft": 0.0, "verify": 0.0}
        self.cycles = 0

    @contextmanager
    def on(self, part: str) -> Iterator[None]:
        """Count the time inside towards `part`."""
        begun = time.perf_counter()
        yield
        self.seconds[part] += time.perf_counter() - begun


@dataclass(frozen=True, slots=True)
class EagleForward:
    """The model and its head on this rank.

    The model's tokens come from the plan, but for those that the head drafts in this very step:
    every rank finds the same ones. What the model knew of each token is kept as its feature until
    the token after it is known; then the head's cache gets an entry for the two.
    """

    model: Model
    cache: torch.Tensor
    """[layers, slots, entry]"""
    reduction: Reduction
    page_size: int
    owner: int | None
    """This rank, where it computes its own segments alone."""
    draft: DraftModel
    draft_cache: torch.Tensor
    """[slots, entry]"""
    features: torch.Tensor
    """The table of `places`, [rows, hidden]."""
    places: Places
    picker: Picker
    aux: torch.Tensor
    """Where the model's hidden states of a step go, [most rows, 3 * hidden]."""
    told: torch.Tensor
    """Shared by all ranks, on the host: the drafts of a step, int64 [sequences, most drafts]."""
    tells: bool
    """Whether this rank tells the drafts of its segments."""
    spent: Spent = field(default_factory=Spent)
    again: bool = False
    """The step before is run once more: the drafts are there."""

    def __call__(self, plan: Plan, *, poisoned: bool) -> tuple[torch.Tensor, torch.Tensor | None]:
        drafting = plan.work is Work.DECODE and plan.width > 1
        if plan.extends and not self.again:
            with self.spent.on("extend"):
                self._extend(plan)
        batch = build_batch(plan, self.page_size, self.cache.device, self.owner)
        if drafting:
            with self.spent.on("draft"):
                drafts = batch.tokens.view(plan.rows, plan.width)[:, 1:]
                drafts.copy_(self._told(plan, drafts) if self.again else self._chain(plan))
            self.spent.cycles += 1
        with self.spent.on("verify") if drafting else nullcontext():
            aux = self.aux[: batch.tokens.shape[0]]
            logits = self.model(batch, self.cache, self.reduction, poisoned=poisoned, aux=aux)
            if not self.again:
                self._keep(plan, batch, self.draft.features(aux, self.reduction))
        if drafting and self.tells:
            # The first time that the host waits for the device in this step.
            numbers = [number for number, _ in self._mine(plan.decoding)]
            self.told[numbers, : plan.width - 1] = drafts[: len(numbers)].cpu()
        return logits, batch.logit_targets

    def prepare(self, rows: int, width: int) -> None:
        self(structs.replace(blank_decode(rows, width), extends=width > 1), poisoned=False)

    def watched(self, reduction: Reduction) -> Forward:
        return replace(self, reduction=reduction, again=True)

    def _mine(self, segments: Sequence[Segment]) -> list[tuple[int, Segment]]:
        """Return this rank's segments with their numbers among all."""
        return [
            (number, segment)
            for number, segment in enumerate(segments)
            if self.owner is None or segment.owner == self.owner
        ]

    def _extend(self, plan: Plan) -> None:
        """Give the head's cache the tokens that have become known since it was extended last."""
        tokens: list[int] = []
        slots, rows, reach = [], [], []
        for _, segment in self._mine(plan.decoding):
            tokens += [*segment.fresh, segment.tokens[0]]
            known = np.arange(segment.start - len(segment.fresh), segment.start + 1)
            reach.append(known)
            slots.append(self.places.slots(segment, known))
            rows.append(self.places.of(segment, known - 1))
        if tokens:
            self.draft.remember(
                self._tensor(np.array(tokens, np.int64)),
                self._tensor(np.concatenate(reach)),
                self._tensor(np.concatenate(slots)),
                self.features.index_select(0, self._tensor(np.concatenate(rows))),
                self.draft_cache,
            )

    def _told(self, plan: Plan, like: torch.Tensor) -> torch.Tensor:
        """Return the drafts of the step before, [rows, width - 1]."""
        numbers = [number for number, _ in self._mine(plan.decoding)]
        drafts = torch.zeros_like(like)
        drafts[: len(numbers)] = self.told[numbers, : plan.width - 1].to(like.device)
        return drafts

    def _chain(self, plan: Plan) -> torch.Tensor:
        """Return the drafts of each row, [rows, width - 1]."""
        steps = plan.width - 1
        rows = np.zeros(plan.rows, np.int64)
        for local, (_, segment) in enumerate(self._mine(plan.decoding)):
            rows[local] = self.places.of(segment, np.array([segment.start - 1]))[0]
        hidden = self.features.index_select(0, self._tensor(rows))
        segments = [
            Segment([s.tokens[0]] * (len(s.tokens) - 1), s.start, s.pages, owner=s.owner)
            for s in plan.decoding
        ]
        ahead = Plan(Work.DECODE, segments, rows=plan.rows, width=steps)
        batch = build_batch(ahead, self.page_size, self.cache.device, self.owner, drafting=True)
        tokens = batch.tokens.view(plan.rows, steps)[:, 0]
        # A masked key must be a number, too: what was never written may be NaN.
        self.draft_cache.index_fill_(0, batch.slots, 0)
        chain = []
        for step in range(steps):
            hidden = self.draft(
                hidden, _column(batch, steps, step, tokens), self.draft_cache, self.reduction
            )
            tokens = self.picker(self.draft.logits(hidden), self.draft.ids)
            chain.append(tokens)
        return torch.stack(chain, dim=1)

    def _keep(self, plan: Plan, batch: Batch, features: torch.Tensor) -> None:
        """Keep the features of a step that are seen later; let the head see those of prompts."""
        kept, rows, firsts, before = [], [], [], []
        begin = 0
        decoding = self._mine(plan.decoding)
        for local, (_, segment) in enumerate(decoding):
            size = len(segment.tokens)
            begin = local * plan.width
            kept.append(begin + np.arange(size))
            rows.append(self.places.of(segment, segment.start + np.arange(size)))
            firsts.append(begin)
            before.append(self.places.of(segment, np.array([segment.start - 1])))
        begin = plan.rows * plan.width
        for _, segment in self._mine(plan.prefilling):
            size = len(segment.tokens)
            positions = segment.start + np.arange(size)
            seen = (positions + 1) % self.page_size == 0
            seen[-1] = True
            kept.append(begin + np.flatnonzero(seen))
            rows.append(self.places.of(segment, positions[seen]))
            firsts.append(begin)
            before.append(self.places.of(segment, np.array([segment.start - 1])))
            begin += size
        if not kept:
            return
        if plan.work is not Work.DECODE:
            earlier = features.roll(1, 0)
            known = self._tensor(np.concatenate(before))
            at = self._tensor(np.array(firsts, np.int64))
            earlier.index_copy_(0, at, self.features.index_select(0, known))
            self.draft.remember(
                batch.tokens, batch.positions, batch.slots, earlier, self.draft_cache
            )
        chosen = features.index_select(0, self._tensor(np.concatenate(kept)))
        self.features.index_copy_(0, self._tensor(np.concatenate(rows)), chosen)

    def _tensor(self, array: np.ndarray[tuple[int, ...], np.dtype[np.int64]]) -> torch.Tensor:
        return torch.from_numpy(array).to(self.cache.device)


def _column(batch: Batch, width: int, step: int, tokens: torch.Tensor) -> Batch:
    """Return the batch of one token of each sequence: the `step`th of `width`."""
    (span,) = batch.spans
    assert span.mask is not None
    return Batch(
        tokens,
        batch.positions.view(-1, width)[:, step],
        batch.slots.view(-1, width)[:, step],
        None,
        (Span(0, span.count, 1, span.keys, span.mask[:, step : step + 1]),),
        None,
        None,
    )
