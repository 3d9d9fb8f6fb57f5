"""Logits that are spread over ranks: rank 0 gets all of them, all ranks get its tokens.

Through torch.distributed, in line with the stream: over NCCL nothing waits for the host.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Protocol

import numpy as np
import torch
import torch.distributed as dist
from torch.nn.functional import pad

from panel.server.cuda.upload import upload
from panel.server.plan import Plan


class Spread(Protocol):
    """How the ranks share the logits."""

    def whole(self, logits: torch.Tensor, plan: Plan) -> torch.Tensor:
        """Return all logits of a plan [rows, vocabulary] on rank 0, something else elsewhere.

        `logits` are those of this rank; all ranks call this together.
        """
        ...


@dataclass(frozen=True, slots=True)
class ByColumns:
    """Each rank has a part of the vocabulary, [rows, part]; the last ones may be short."""

    rank: int
    ranks: int
    vocabulary: int

    def whole(self, logits: torch.Tensor, plan: Plan) -> torch.Tensor:
        if not logits.shape[0]:
            return logits
        width = -(-self.vocabulary // self.ranks)
        parts = _gathered(pad(logits, (0, width - logits.shape[1])), self.rank, self.ranks)
        return logits if parts is None else parts.transpose(0, 1).flatten(1)[:, : self.vocabulary]


@dataclass(frozen=True, slots=True)
class ByRows:
    """Each rank has the rows of its own sequences, [its rows, vocabulary]."""

    rank: int
    ranks: int

    def whole(self, logits: torch.Tensor, plan: Plan) -> torch.Tensor:
        owned = [plan.rows_of(rank) for rank in range(self.ranks)]
        most = max(map(len, owned))
        if not most:
            return logits
        parts = _gathered(pad(logits, (0, 0, 0, most - logits.shape[0])), self.rank, self.ranks)
        if parts is None:
            return logits
        places = np.empty(sum(map(len, owned)), np.int64)
        for rank, rows in enumerate(owned):
            places[rows] = rank * most + np.arange(len(rows))
        return parts.flatten(0, 1)[upload({"places": places}, logits.device).views["places"]]


def agree(tokens: torch.Tensor) -> None:
    """Overwrite `tokens` with those of rank 0."""
    dist.broadcast(tokens, src=0)


def _gathered(mine: torch.Tensor, rank: int, ranks: int) -> torch.Tensor | None:
    """Return what all ranks have, one after the other, on rank 0; None elsewhere."""
    mine = mine.contiguous()
    parts = mine.new_empty(ranks, *mine.shape) if rank == 0 else None
    dist.gather(mine, None if parts is None else list(parts.unbind(0)), dst=0)
    return parts
