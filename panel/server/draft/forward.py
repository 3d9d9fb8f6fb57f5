"""A plan through the model with a draft head: catch up, draft, verify, all in one step."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, nullcontext
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING

import torch
from msgspec import structs

from panel.server.batch import Batch, Span, build_batch
from panel.server.draft.model import DraftModel
from panel.server.draft.pick import Picker
from panel.server.draft.places import Ints, Places
from panel.server.draft.seen import Seen, Shown
from panel.server.draft.target import Target, Verified
from panel.server.forward import Forward
from panel.server.plan import Plan, Segment, Work, blank_decode
from panel.server.reduction import Reduction

if TYPE_CHECKING:
    # Triton has no wheels for some CPU machines.
    from panel.server.cuda.head import KernelHead


class Spent:
    """Time in the parts of the steps with drafts since start, on this rank."""

    def __init__(self) -> None:
        self.seconds = {"extend": 0.0, "draft": 0.0, "verify": 0.0}
        self.cycles = 0
        self.foreseen = 0
        """Cycles whose verification the head laid out on the device."""

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

    target: Target
    page_size: int
    owner: int | None
    """This rank, where it computes its own segments alone."""
    draft: DraftModel
    cache: torch.Tensor
    """The head's, [slots, entry]."""
    features: torch.Tensor
    """The table of `places`, [rows, hidden]."""
    places: Places
    picker: Picker
    told: torch.Tensor
    """Shared by all ranks, on the host: the drafts of a step, int64 [sequences, most drafts]."""
    tells: bool
    """Whether this rank tells the drafts of its segments."""
    sums: Reduction
    """Over the ranks that have a part of the head."""
    announce: Callable[[], None] | None
    """Meets the ranks that have none of it, once they can read the drafts."""
    spent: Spent = field(default_factory=Spent)
    again: bool = False
    """The step before is run once more: the drafts are there."""
    kernels: KernelHead | None = None
    """Runs cycles on a GPU where this rank has the head whole."""

    @property
    def reduction(self) -> Reduction:
        """The sums over all ranks."""
        return self.target.reduction

    def __call__(self, plan: Plan, *, poisoned: bool) -> tuple[torch.Tensor, torch.Tensor | None]:
        drafting = plan.work is Work.DECODE and plan.width > 1
        owned = self._mine(plan.decoding)
        if self.kernels is not None:
            if drafting and not self.again and self.kernels.serves(plan, owned):
                return self._cycle(self.kernels, plan, owned, poisoned)
            self.kernels.stop()
        if plan.extends and not self.again:
            with self.spent.on("extend"):
                self._extend(plan)
        drafts = None
        if drafting:
            with self.spent.on("draft"):
                drafts = self._told(plan) if self.again else self._chain(plan)
            self.spent.cycles += 1
            if self.kernels is not None:
                self.kernels.drafts[: plan.rows, : plan.width - 1] = drafts
            if self.announce is not None and not self.again:
                self._tell(plan, drafts)
                self.announce()
        with self.spent.on("verify") if drafting else nullcontext():
            verified = self.target.verify(plan, drafts, poisoned=poisoned)
            if not self.again:
                self._keep(plan, verified)
        if drafts is not None and self.announce is None and self.tells:
            # The first time that the host waits for the device in this step.
            self._tell(plan, drafts)
        return verified.logits, verified.targets

    def _cycle(
        self, kernels: KernelHead, plan: Plan, owned: list[int], poisoned: bool
    ) -> tuple[torch.Tensor, torch.Tensor | None]:
        """Do all of it by kernels; the host only puts it in line."""
        kernels.draft(plan, owned)
        if self.announce is not None:
            self._tell(plan, kernels.drafted(plan))
            self.announce()
        with kernels.clock.on("verify"):
            verified = None if poisoned else kernels.verify(plan)
            if verified is None:
                verified = self.target.verify(plan, kernels.drafted(plan), poisoned=poisoned)
            else:
                self.spent.foreseen += 1
            kernels.keep(verified.width)
        if self.announce is None and self.tells:
            self._tell(plan, kernels.drafted(plan))
        for part, seconds in kernels.clock.read():
            self.spent.seconds[part] += seconds
        self.spent.cycles += 1
        return verified.logits, verified.targets

    def prepare(self, rows: int, width: int) -> None:
        self.target.prepare(rows, width)
        if self.kernels is not None and width == self.kernels.width:
            self.kernels.prepare(rows)
        self(structs.replace(blank_decode(rows, width), extends=width > 1), poisoned=False)

    def watched(self, reduction: Reduction) -> Forward:
        return replace(self, target=self.target.watched(reduction), again=True)

    def _mine(self, segments: Sequence[Segment]) -> list[int]:
        """Return the numbers of this rank's segments."""
        every = enumerate(segments)
        return [n for n, each in every if self.owner is None or each.owner == self.owner]

    def _seen(self, plan: Plan, width: int) -> Seen:
        decoding, prefilling = plan.decoding, plan.prefilling
        return Seen(
            self.places,
            [decoding[number] for number in self._mine(decoding)],
            [prefilling[number] for number in self._mine(prefilling)],
            plan.rows,
            width,
        )

    def _extend(self, plan: Plan) -> None:
        """Give the head's cache the tokens that have become known since it was extended last."""
        self._show(self._seen(plan, plan.width).fresh(), self.features[:1])

    def _show(self, shown: Shown, features: torch.Tensor) -> None:
        """Let the head see tokens; `features` [rows, hidden] are those of the step."""
        if not len(shown.tokens):
            return
        earlier = self.features.index_select(0, self._tensor(shown.places))
        if len(shown.rows):
            before = features.index_select(0, self._tensor(shown.rows))
            earlier = before.index_copy_(0, self._tensor(shown.firsts), earlier)
        tokens, positions, slots = map(self._tensor, shown[:3])
        self.draft.remember(tokens, positions, slots, earlier, self.cache)

    def _tell(self, plan: Plan, drafts: torch.Tensor) -> None:
        numbers = self._mine(plan.decoding)
        self.told[numbers, : plan.width - 1] = drafts[: len(numbers)].cpu()

    def _told(self, plan: Plan) -> torch.Tensor:
        """Return the drafts of the step before, [rows, width - 1]."""
        numbers = self._mine(plan.decoding)
        drafts = self.told.new_zeros(plan.rows, plan.width - 1)
        drafts[: len(numbers)] = self.told[numbers, : plan.width - 1]
        return drafts.to(self.cache.device)

    def _chain(self, plan: Plan) -> torch.Tensor:
        """Return the drafts of each row, [rows, width - 1]."""
        steps = plan.width - 1
        last = self._tensor(self._seen(plan, plan.width).last())
        hidden = self.features.index_select(0, last)
        segments = [
            Segment([s.tokens[0]] * (len(s.tokens) - 1), s.start, s.pages, owner=s.owner)
            for s in plan.decoding
        ]
        ahead = Plan(Work.DECODE, segments, rows=plan.rows, width=steps)
        batch = build_batch(ahead, self.page_size, self.cache.device, self.owner, drafting=True)
        tokens = batch.tokens.view(plan.rows, steps)[:, 0]
        # A masked key must be a number, too: what was never written may be NaN.
        self.cache.index_fill_(0, batch.slots, 0)
        chain = []
        for step in range(steps):
            hidden = self.draft(hidden, _column(batch, steps, step, tokens), self.cache, self.sums)
            tokens = self.picker(self.draft.logits(hidden), self.draft.ids)
            chain.append(tokens)
        return torch.stack(chain, dim=1)

    def _keep(self, plan: Plan, verified: Verified) -> None:
        """Keep the features of a step that are seen later; let the head see those of prompts."""
        assert verified.aux is not None
        features = self.draft.features(verified.aux, self.sums)
        seen = self._seen(plan, verified.width)
        if plan.work is not Work.DECODE:
            self._show(seen.shown(), features)
        rows, places = map(self._tensor, seen.kept())
        self.features.index_copy_(0, places, features.index_select(0, rows))

    def _tensor(self, array: Ints) -> torch.Tensor:
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
