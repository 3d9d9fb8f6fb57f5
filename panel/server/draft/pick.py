"""The best guess of each row, over the parts of the reduced vocabulary that the ranks hold."""

from __future__ import annotations

from typing import Protocol

import torch
import torch.distributed as dist

from panel.server.meeting import Barrier
from panel.server.roster import Roster


class Picker(Protocol):
    """All ranks call it together and get the same tokens."""

    def __call__(self, logits: torch.Tensor, ids: torch.Tensor) -> torch.Tensor:
        """Return the best token of each row, int64 [rows].

        `logits` has shape [rows, this rank's columns]; `ids` are the columns' tokens, int64.
        """
        ...


class PickAlone:
    """This rank has the whole vocabulary."""

    def __call__(self, logits: torch.Tensor, ids: torch.Tensor) -> torch.Tensor:
        return ids[logits.argmax(1)]


class PickInSharedMemory:
    """Ranks of one host: each shows its best guess; two sets take turns as in the sums."""

    def __init__(self, guesses: torch.Tensor, barrier: Barrier, roster: Roster) -> None:
        """`guesses` has shape [2, ranks, 2, rows], float64: logits, then tokens."""
        self._guesses = guesses
        self._barrier = barrier
        self._roster = roster
        self._turn = 0

    def __call__(self, logits: torch.Tensor, ids: torch.Tensor) -> torch.Tensor:
        shown = self._guesses[self._turn, :, :, : logits.shape[0]]
        self._turn ^= 1
        shown[self._roster.rank] = _best(logits, ids)
        self._barrier.wait(self._roster)
        return _best_of(shown)


class PickDistributed:
    """torch.distributed, over NCCL between GPUs or over gloo."""

    def __init__(self, ranks: int) -> None:
        self._ranks = ranks

    def __call__(self, logits: torch.Tensor, ids: torch.Tensor) -> torch.Tensor:
        mine = _best(logits, ids)
        every = mine.new_empty(self._ranks, *mine.shape)
        dist.all_gather(list(every.unbind(0)), mine)
        return _best_of(every)


def _best(logits: torch.Tensor, ids: torch.Tensor) -> torch.Tensor:
    """Return the best logit of each row and its token, float64 [2, rows]."""
    if not ids.shape[0]:
        return logits.new_full((2, logits.shape[0]), float("-inf"), dtype=torch.float64)
    best = logits.max(1)
    # A NaN would be no guess at all: any token will do, the model decides.
    values = best.values.double().nan_to_num(0.0)
    return torch.stack((values, ids[best.indices].double()))


def _best_of(every: torch.Tensor) -> torch.Tensor:
    """Return the tokens of the best logits, int64 [rows]; `every` is [ranks, 2, rows]."""
    winner = every[:, 0].argmax(0, keepdim=True)
    return every[:, 1].gather(0, winner).squeeze(0).long()
