"""The model by kernels, for a draft head."""

from __future__ import annotations

from dataclasses import dataclass, replace

import torch

from panel.server.cuda.forward import KernelForward
from panel.server.cuda.upload import Inputs
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
        layout = self.kernels.lay_out(plan)
        logits = self.kernels.run(plan, layout, drafts, poisoned=poisoned)
        if aux is not None:
            aux = aux[: layout.rows]
        return Verified(logits, layout.targets, aux, layout.width)

    def inputs(self, rows: int, width: int) -> Inputs | None:
        """Return what the graph of such a verification reads; None without one."""
        return self.kernels.inputs(rows, width)

    def replay(self, plan: Plan) -> Verified:
        """Run the verification that lies in `inputs` already."""
        aux = self.kernels.stack.aux
        assert aux is not None
        logits = self.kernels.replay(plan)
        return Verified(logits, None, aux[: plan.rows * plan.width], plan.width)

    def prepare(self, rows: int, width: int) -> None:
        self.kernels.prepare(rows, width)

    def watched(self, reduction: Reduction) -> Target:
        watched = self.kernels.watched(reduction)
        assert isinstance(watched, KernelForward)
        return replace(self, kernels=watched)
