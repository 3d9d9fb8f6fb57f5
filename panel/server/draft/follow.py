"""A rank without a part of the draft head: it is told the drafts and verifies with the others."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace

import torch

from panel.server.draft.target import Target
from panel.server.forward import Forward
from panel.server.plan import Plan, Work, blank_decode
from panel.server.reduction import Reduction


@dataclass(frozen=True, slots=True)
class Followed:
    """The model alone; rank 0 drafts."""

    target: Target
    told: torch.Tensor
    """The drafts of a step, on the host, int64 [sequences, most drafts]."""
    hear: Callable[[], None]
    """Returns once they are there."""
    again: bool = False
    """The step before is run once more: the drafts are there."""

    @property
    def reduction(self) -> Reduction:
        """The sums over all ranks."""
        return self.target.reduction

    def __call__(self, plan: Plan, *, poisoned: bool) -> tuple[torch.Tensor, torch.Tensor | None]:
        drafts = None
        if plan.work is Work.DECODE and plan.width > 1:
            if not self.again:
                self.hear()
            drafts = self.told.new_zeros(plan.rows, plan.width - 1)
            count = len(plan.decoding)
            drafts[:count] = self.told[:count, : plan.width - 1]
        verified = self.target.verify(plan, drafts, poisoned=poisoned)
        return verified.logits, verified.targets

    def prepare(self, rows: int, width: int) -> None:
        self.target.prepare(rows, width)
        self(blank_decode(rows, width), poisoned=False)

    def watched(self, reduction: Reduction) -> Forward:
        return replace(self, target=self.target.watched(reduction), again=True)
