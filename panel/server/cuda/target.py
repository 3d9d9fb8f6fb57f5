"""The model by kernels, for a draft head."""

from __future__ import annotations

from dataclasses import dataclass, replace

import torch

from panel.server.cuda.forward import KernelForward
from panel.server.draft.target import Target, Verified
from panel.server.plan import Plan
from panel.server.reduction import Reduction


@dataclass(frozen=True, slots=True)
class KernelTarget:
    """Verifies from captured graphs; its stack writes the hidden states of the tapped layers."""

    kernels: KernelForward

    @property
    def reduction(self) -> Reduction:
        return self.kernels.reduction

    def verify(self, plan: Plan, drafts: torch.Tensor | None, *, poisoned: bool) -> Verified:
        aux = self.kernels.stack.aux
        width = self.kernels.width(plan)
        logits = self.kernels.run(plan, width, drafts, poisoned=poisoned)
        prefilled = sum(len(segment.tokens) for segment in plan.prefilling)
        if aux is not None:
            aux = aux[: plan.rows * width + prefilled]
        return Verified(logits, None, aux, width)

    def prepare(self, rows: int, width: int) -> None:
        self.kernels.prepare(rows, width)

    def watched(self, reduction: Reduction) -> Target:
        watched = self.kernels.watched(reduction)
        assert isinstance(watched, KernelForward)
        return replace(self, kernels=watched)
