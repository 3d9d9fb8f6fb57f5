"""A plan through this rank's shard of the model."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Protocol

import torch

from panel.server.batch import build_batch
from panel.server.model import Model
from panel.server.plan import Plan, blank_decode
from panel.server.reduction import Reduction


class Forward(Protocol):
    """Computes the tokens of a plan."""

    @property
    def reduction(self) -> Reduction:
        """The sums over all ranks."""
        ...

    def __call__(self, plan: Plan, *, poisoned: bool) -> tuple[torch.Tensor, torch.Tensor | None]:
        """Return the wanted logits of this rank, [rows, its part of the vocabulary].

        And where they go among those of all ranks, int64 [rows]; None: they are the first rows.
        `poisoned` makes the hidden state NaN, for drills.
        """
        ...

    def prepare(self, rows: int, width: int) -> None:
        """Do what can be done beforehand for decode steps of `rows` sequences of `width` tokens.

        Called for the largest first.
        """
        ...

    def watched(self, reduction: Reduction) -> Forward:
        """Return the same computation with other sums."""
        ...


@dataclass(frozen=True, slots=True)
class TorchForward:
    """Operator by operator: on CPU ranks, and on a GPU for what has no kernels."""

    model: Model
    cache: torch.Tensor
    """[layers, slots, entry]"""
    reduction: Reduction
    page_size: int
    owner: int | None
    """This rank, where it computes its own segments alone."""

    def __call__(self, plan: Plan, *, poisoned: bool) -> tuple[torch.Tensor, torch.Tensor | None]:
        batch = build_batch(plan, self.page_size, self.cache.device, self.owner)
        logits = self.model(batch, self.cache, self.reduction, poisoned=poisoned)
        return logits, batch.logit_targets

    def prepare(self, rows: int, width: int) -> None:
        self(blank_decode(rows, width), poisoned=False)

    def watched(self, reduction: Reduction) -> Forward:
        return replace(self, reduction=reduction)
