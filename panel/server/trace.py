"""Where NaN and infinity come from: the step is run again with every rank watching its own part."""

from __future__ import annotations

from dataclasses import replace

import torch

from panel.server.norm import RMSNorm
from panel.server.plan import Plan
from panel.server.reduction import Reduction
from panel.server.runner import Runner
from panel.server.shared import Shared

_NEVER = 1 << 32


class _Watched:
    """Notes the first sum to which this rank brings a part that is not finite."""

    def __init__(self, inner: Reduction) -> None:
        self.path = inner.path
        self.first = _NEVER
        self._inner = inner
        self._sums = 0

    def part(self, rows: int) -> torch.Tensor:
        return self._inner.part(rows)

    def add_sum_(self, hidden: torch.Tensor, norm: RMSNorm | None = None) -> torch.Tensor:
        if self.first == _NEVER and not self._inner.part(hidden.shape[0]).isfinite().all():
            self.first = self._sums
        self._sums += 1
        return self._inner.add_sum_(hidden, norm)


def trace(runner: Runner, plan: Plan, shared: Shared) -> str:
    """Run a step again on all ranks; return in words which of them was first not finite.

    Running a step twice writes the same into the same places of the cache.
    """
    watched = _Watched(runner.forward.reduction)
    forward = runner.forward.watched(watched)
    replace(runner, forward=forward, rebalancer=None, interval=0)(plan)
    firsts = shared.votes.all(watched.first, shared.roster)
    first = min(firsts)
    if first == _NEVER:
        return "every sum of the ranks is finite when the step runs again: suspect the output head"
    ranks = " ".join(str(rank) for rank, each in enumerate(firsts) if each == first)
    layer, place = divmod(first, 2)
    return (
        f"first not finite in layer {layer}, {'feed-forward' if place else 'attention'}, "
        f"on rank {ranks}"
    )
