"""Which experts a token goes to."""

from __future__ import annotations

from dataclasses import dataclass

import torch

from panel.server.shape import RoutingShape


@dataclass(frozen=True, slots=True)
class Router:
    """The choice of experts of one layer."""

    shape: RoutingShape
    bias: torch.Tensor | None
    """Correction of the scores for the choice alone, [experts]."""

    def __call__(self, logits: torch.Tensor) -> torch.Tensor:
        """Return each expert's weight, 0 where it is not chosen; both [rows, experts]."""
        shape = self.shape
        sigmoid = shape.scoring == "sigmoid"
        scores = torch.sigmoid(logits) if sigmoid else torch.softmax(logits, dim=-1)
        choice = scores if self.bias is None else scores + self.bias
        if shape.groups > 1:
            choice = self._limit(choice)
        chosen = torch.topk(choice, shape.experts_per_token, dim=-1, sorted=False).indices
        picked = scores.gather(1, chosen)
        if shape.normalise:
            picked = picked / picked.sum(dim=-1, keepdim=True).add_(1e-20)
        return torch.zeros_like(scores).scatter_(1, chosen, picked)

    def _limit(self, choice: torch.Tensor) -> torch.Tensor:
        """Rule out the experts of all but the best groups."""
        shape = self.shape
        grouped = torch.unflatten(choice, 1, (shape.groups, -1))
        best = grouped.topk(shape.group_best, dim=-1).values.sum(dim=-1)
        kept = torch.topk(best, shape.groups_per_token, dim=-1, sorted=False).indices
        closed = torch.ones_like(best, dtype=torch.bool).scatter_(1, kept, False)
        return grouped.masked_fill(closed[:, :, None], float("-inf")).flatten(1)
