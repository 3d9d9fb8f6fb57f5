"""The model that a draft head works for: it verifies, and tells its hidden states."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import NamedTuple, Protocol

import torch

from panel.server.batch import build_batch
from panel.server.forward import TorchForward
from panel.server.plan import Plan
from panel.server.reduction import Reduction


class Verified(NamedTuple):
    """One step of the model."""

    logits: torch.Tensor
    targets: torch.Tensor | None
    """As of `Forward`."""
    aux: torch.Tensor | None
    """Hidden states of the tapped layers, [rows, 3 * hidden]: the sequences that decode, `width`
    tokens each, then those that prefill."""
    width: int


class Target(Protocol):
    """Computes a plan."""

    @property
    def reduction(self) -> Reduction:
        """The sums over all ranks."""
        ...

    def verify(self, plan: Plan, drafts: torch.Tensor | None, *, poisoned: bool) -> Verified:
        """Run the model; `drafts` [sequences, width - 1] are what the plan leaves open."""
        ...

    def prepare(self, rows: int, width: int) -> None:
        """Do beforehand what can be done for the model's part of decode steps."""
        ...

    def watched(self, reduction: Reduction) -> Target:
        """Return the same computation with other sums."""
        ...


@dataclass(frozen=True, slots=True)
class TorchTarget:
    """Operator by operator."""

    plain: TorchForward
    aux: torch.Tensor | None
    """[most rows, 3 * hidden]; None where nobody looks at it."""

    @property
    def reduction(self) -> Reduction:
        return self.plain.reduction

    def verify(self, plan: Plan, drafts: torch.Tensor | None, *, poisoned: bool) -> Verified:
        plain = self.plain
        batch = build_batch(plan, plain.page_size, plain.cache.device, plain.owner)
        if drafts is not None:
            batch.tokens.view(plan.rows, plan.width)[:, 1:] = drafts
        aux = None if self.aux is None else self.aux[: batch.tokens.shape[0]]
        logits = plain.model(batch, plain.cache, plain.reduction, poisoned=poisoned, aux=aux)
        return Verified(logits, batch.logit_targets, aux, plan.width)

    def prepare(self, rows: int, width: int) -> None:
        """Nothing: the first step does as well."""

    def watched(self, reduction: Reduction) -> Target:
        return replace(self, plain=replace(self.plain, reduction=reduction))
