"""One rank's side of a step: plan in, logits out."""

from __future__ import annotations

from collections.abc import Sequence as Sequences
from dataclasses import dataclass

import torch

from panel.server.flight import DeviceSampler, Flight
from panel.server.forward import Forward
from panel.server.life import Life
from panel.server.messages import Rebalanced
from panel.server.plan import Plan, Work
from panel.server.rebalance import Rebalancer
from panel.server.sequence import Sequence

_PUBLISH_STEPS = 64
"""Steps after which the other ranks see what this one counted."""


@dataclass(slots=True)
class Runner:
    """Runs plans on this rank's shard."""

    forward: Forward
    logits: torch.Tensor
    """Shared by all ranks, on the host: [most rows, vocabulary]; each writes its own columns, or
    its own rows under data-parallel attention."""
    columns: slice
    rebalancer: Rebalancer | None
    """None where experts have no places of their own."""
    interval: int
    """Steps between two rebalances; 0: only when a plan says so."""
    life: Life
    device_sampler: DeviceSampler | None = None
    """None where the host samples."""
    quiet: Forward | None = None
    """The forward for steps that the device samples, where it is another one."""
    steps: int = 0
    rebalances: int = 0
    rebalanced: Rebalanced | None = None
    """The last one."""

    def __call__(self, plan: Plan) -> None:
        """Run a plan with tokens or a rebalance.

        The logits of the former are in `logits` after it, as `Plan.logit_begins` says.
        """
        if plan.work is Work.REBALANCE:
            self._rebalance()
            return
        result, targets = self.forward(plan, poisoned=self.life.poisoned)
        if targets is None:
            self.logits[: result.shape[0], self.columns].copy_(result)
        else:
            self.logits[targets.cpu(), self.columns] = result.float().cpu()
        self._count()

    def serves(self, plan: Plan, sequences: Sequences[Sequence]) -> bool:
        """True where the device can sample a step's tokens; no host has to see its logits then."""
        if self.device_sampler is None or not plan.segments:
            return False
        scored = any(segment.scored for segment in plan.prefilling)
        return not scored and self.device_sampler.serves(sequences)

    def launch(self, plan: Plan, sequences: Sequences[Sequence]) -> Flight:
        """Begin a step whose tokens the device samples for `sequences`; the others `join`."""
        sampler, logits = self._quietly(plan)
        flight = sampler.sample(logits, sequences, plan.width)
        self._count()
        return flight

    def join(self, plan: Plan) -> None:
        """Begin this rank's part of a step that rank 0 launches."""
        sampler, _ = self._quietly(plan)
        sampler.follow(len(plan.logit_begins) * plan.width)
        self._count()

    def _quietly(self, plan: Plan) -> tuple[DeviceSampler, torch.Tensor]:
        """Run a plan as far as its logits, which are all on rank 0 then."""
        assert self.device_sampler is not None
        forward = self.quiet or self.forward
        logits, _ = forward(plan, poisoned=self.life.poisoned)
        return self.device_sampler, self.device_sampler.whole(logits, plan)

    def _count(self) -> None:
        """Count a step; do what is due after so many."""
        self.steps += 1
        if self.interval and self.steps % self.interval == 0:
            self._rebalance()
        elif self.rebalancer is not None and self.steps % _PUBLISH_STEPS == 0:
            self.rebalancer.show()

    def begin(self) -> None:
        """Forget the steps so far, which were dry runs."""
        self.steps = 0
        if self.rebalancer is not None:
            self.rebalancer.forget()

    @property
    def balancedness(self) -> float | None:
        """How evenly the experts' load since the last rebalance is spread; None if not known."""
        return None if self.rebalancer is None else self.rebalancer.balancedness()

    def _rebalance(self) -> None:
        if self.rebalancer is not None:
            self.rebalanced = self.rebalancer()
            self.rebalances += 1
