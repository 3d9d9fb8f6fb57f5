"""All-to-all between ranks: tokens to their experts, results back."""

from __future__ import annotations

from collections.abc import Callable
from typing import Protocol

import torch
import torch.distributed as dist

from panel.server.experts import RoutedExperts
from panel.server.meeting import Barrier
from panel.server.roster import Roster


class Exchange(Protocol):
    """Takes each row once to every rank that has experts for it."""

    path: str

    def __call__(
        self,
        normed: torch.Tensor,
        weights: torch.Tensor,
        experts: RoutedExperts,
        part: torch.Tensor,
    ) -> None:
        """Add what all ranks' experts make of this rank's rows to `part`.

        Shapes: normed and part [rows, hidden], weights [rows, slots of all ranks]. All ranks call
        this together, also those without rows.
        """
        ...


class SharedMemoryExchange:
    """Ranks of one host: each writes its rows into memory of its own, sorted by destination.

    The destination writes the results over the rows that it was sent: the answer comes back in the
    place of the question. Nobody but the sender looks there after the second meeting, so that one
    set of rows is enough.
    """

    path = "shm"

    def __init__(
        self, rows: torch.Tensor, counts: torch.Tensor, barrier: Barrier, roster: Roster
    ) -> None:
        """Shapes: `rows` [ranks, most rows sent, hidden + slots of a rank], `counts` [from, to]."""
        self._rows = rows
        self._counts = counts
        self._barrier = barrier
        self._roster = roster

    def __call__(
        self,
        normed: torch.Tensor,
        weights: torch.Tensor,
        experts: RoutedExperts,
        part: torch.Tensor,
    ) -> None:
        rank, hidden = self._roster.rank, normed.shape[1]
        asked, rows, counts = _sort(normed, weights, self._counts.shape[0])
        self._counts[rank] = counts
        sent = self._rows[rank, : asked.shape[0]]
        sent.copy_(asked)
        self._barrier.wait(self._roster)
        received = []
        for sender, line in enumerate(self._counts.tolist()):
            begin = sum(line[:rank])
            if line[rank]:
                received.append(self._rows[sender, begin : begin + line[rank]])
        if received:
            results = _compute(torch.cat(received), hidden, experts)
            pieces = results.split([piece.shape[0] for piece in received])
            for piece, result in zip(received, pieces, strict=True):
                piece[:, :hidden] = result
        self._barrier.wait(self._roster)
        part.index_add_(0, rows, sent[:, :hidden])


class DistributedExchange:
    """torch.distributed, over NCCL between GPUs or over gloo."""

    def __init__(self, path: str, ranks: int) -> None:
        self.path = path
        self._ranks = ranks

    def __call__(
        self,
        normed: torch.Tensor,
        weights: torch.Tensor,
        experts: RoutedExperts,
        part: torch.Tensor,
    ) -> None:
        hidden = normed.shape[1]
        asked, rows, counts = _sort(normed, weights, self._ranks)
        coming = torch.empty_like(counts)
        all_to_all(coming, counts)
        there, here = counts.tolist(), coming.tolist()
        received = asked.new_empty(sum(here), asked.shape[1])
        all_to_all(received, asked, here, there)
        results = _compute(received, hidden, experts)
        answers = results.new_empty(asked.shape[0], hidden)
        all_to_all(answers, results, there, here)
        part.index_add_(0, rows, answers)


def _nothing() -> None:
    pass


def all_to_all(
    coming: torch.Tensor,
    going: torch.Tensor,
    here: list[int] | None = None,
    there: list[int] | None = None,
    *,
    meanwhile: Callable[[], None] = _nothing,
) -> None:
    """Send `going`, of which `there` says how many lines are for each rank; `here`, how many come.

    Without them as many for each. Both tensors are contiguous. `meanwhile` is called while they are
    under way, and does not touch them.
    """
    if _through_host(going):
        landed = torch.empty(coming.shape, dtype=coming.dtype)
        dist.all_to_all_single(landed, going.cpu(), here, there)
        coming.copy_(landed)
        meanwhile()
    else:
        work = dist.all_to_all_single(coming, going, here, there, async_op=True)
        meanwhile()
        work.wait()


def all_gather(
    coming: torch.Tensor, going: torch.Tensor, *, meanwhile: Callable[[], None] = _nothing
) -> None:
    """Send `going` to all ranks; what all of them send comes in their order."""
    if _through_host(going):
        landed = torch.empty(coming.shape, dtype=coming.dtype)
        _gather(landed, going.cpu())
        coming.copy_(landed)
        meanwhile()
    else:
        work = _gather(coming, going, async_op=True)
        meanwhile()
        work.wait()


# torch 2.13 has given it a new name.
_gather = getattr(dist, "all_gather_single", None) or dist.all_gather_into_tensor


def _through_host(tensor: torch.Tensor) -> bool:
    """True where ranks share a GPU: gloo serves them, which knows the host's memory alone."""
    return tensor.is_cuda and dist.get_backend() == "gloo"


def _sort(
    normed: torch.Tensor, weights: torch.Tensor, ranks: int
) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
    """Return what to send, sorted by destination, its rows, and how much goes to each rank.

    A line sent is a row and its weights for the slots of the destination.
    """
    by_rank = torch.unflatten(weights, 1, (ranks, -1))
    wanted = (by_rank != 0).any(dim=2)
    to, rows = wanted.t().nonzero(as_tuple=True)
    return torch.cat((normed[rows], by_rank[rows, to]), dim=1), rows, wanted.sum(0)


def _compute(received: torch.Tensor, hidden: int, experts: RoutedExperts) -> torch.Tensor:
    normed, weights = received[:, :hidden], received[:, hidden:]
    results = received.new_zeros(received.shape[0], hidden)
    experts.add(normed, weights, results)
    return results
