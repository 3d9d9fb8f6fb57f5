"""Which experts a token goes to: sigmoid scores, bias correction, limited groups (noaux_tc)."""

from __future__ import annotations

from dataclasses import dataclass

import torch


@dataclass(frozen=True, slots=True)
class Router:
    """The choice of experts of one layer."""

    bias: torch.Tensor
    """Correction of the scores for the choice alone, [experts]."""
    experts_per_token: int
    groups: int
    groups_per_token: int
    normalise: bool

    def __call__(self, logits: torch.Tensor) -> torch.Tensor:
        """Return each expert's weight, 0 where it is not chosen; both [rows, experts]."""
        scores = torch.sigmoid(logits)
        choice = scores + self.bias
        if self.groups > 1:
            choice = self._limit(choice)
        chosen = torch.topk(choice, self.experts_per_token, dim=-1, sorted=False).indices
        picked = scores.gather(1, chosen)
        if self.normalise:
            picked = picked / picked.sum(dim=-1, keepdim=True).add_(1e-20)
        return torch.zeros_like(scores).scatter_(1, chosen, picked)

    def _limit(self, choice: torch.Tensor) -> torch.Tensor:
        """Rule out the experts of all but the best groups, by the sum of a group's two best."""
        grouped = torch.unflatten(choice, 1, (self.groups, -1))
        best = grouped.topk(2, dim=-1).values.sum(dim=-1)
        kept = torch.topk(best, self.groups_per_token, dim=-1, sorted=False).indices
        closed = torch.ones_like(best, dtype=torch.bool).scatter_(1, kept, False)
        return grouped.masked_fill(closed[:, :, None], float("-inf")).flatten(1)
