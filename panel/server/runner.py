"""One rank's side of a step: plan in, logits out."""

from __future__ import annotations

from dataclasses import dataclass

import torch

from panel.server.batch import build_batch
from panel.server.life import Life
from panel.server.model import Model
from panel.server.plan import Plan, Segment, Work
from panel.server.reduction import Reduction


@dataclass(frozen=True, slots=True)
class Runner:
    """Runs plans on this rank's shard."""

    model: Model
    cache: torch.Tensor
    """[layers, slots, latent + rope]"""
    reduction: Reduction
    logits: torch.Tensor
    """Shared by all ranks, on the host: [most rows, vocabulary]; each writes its own columns."""
    columns: slice
    page_size: int
    life: Life

    def __call__(self, plan: Plan) -> None:
        """Run a prefill or decode plan; its logits are in the first rows of `logits` after it."""
        batch = build_batch(plan, self.page_size, self.cache.device)
        result = self.model(batch, self.cache, self.reduction, poisoned=self.life.poisoned)
        self.logits[: result.shape[0], self.columns].copy_(result)


def blank_decode(rows: int, width: int) -> Plan:
    """Return a decode plan that touches nobody's cache."""
    return Plan(Work.DECODE, [Segment([0], 0, bytes(4))], rows=rows, width=width)


def blank_prefill(tokens: int, page_size: int) -> Plan:
    """Return a prefill plan of `tokens` tokens that touches nobody's cache."""
    pages = bytes(4 * -(-tokens // page_size))
    return Plan(Work.PREFILL, [Segment([0] * tokens, 0, pages)])
