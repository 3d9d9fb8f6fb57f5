"""Sums over GPUs that write into each other's memory, opened by CUDA IPC."""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeVar

import torch

from panel.kernels.boxes import Boxes
from panel.kernels.peer_sum import peer_sum
from panel.server.kept.driver import HANDLE_BYTES, Driver
from panel.server.kept.shelf import bytes_at
from panel.server.meeting import Votes
from panel.server.norm import RMSNorm
from panel.server.roster import Roster

T = TypeVar("T")


class PeersError(Exception):
    """A rank's GPU cannot be written to by another, or gets what was not sent."""


class PeerMemory:
    """One launch a sum, which also normalises; larger sums go through in pieces.

    Needs no host, so that graphs can hold it.
    """

    path = "peer"

    def __init__(self, buffer: torch.Tensor, boxes: Boxes) -> None:
        """`buffer` has shape [most rows, width]."""
        self._buffer = buffer
        self._boxes = boxes

    def part(self, rows: int) -> torch.Tensor:
        return self._buffer[:rows]

    def add_sum_(self, hidden: torch.Tensor, norm: RMSNorm | None = None) -> torch.Tensor:
        rows, most = hidden.shape[0], self._boxes.rows
        if rows <= most:
            fused = None if norm is None else (norm.gain, norm.floor)
            return peer_sum(self._buffer[:rows], hidden, self._boxes, fused)
        for begin in range(0, rows, most):
            part, piece = (t[begin : begin + most] for t in (self._buffer[:rows], hidden))
            peer_sum(part, piece, self._boxes)
        return hidden if norm is None else norm(hidden)


def open_boxes(
    rows: int,
    size: int,
    handles: memoryview,
    votes: Votes,
    roster: Roster,
    device: torch.device,
) -> Boxes:
    """Return the boxes of all ranks, of `size` bytes each, for sums of at most `rows` rows.

    `handles` is shared by the ranks, `HANDLE_BYTES` for each. All ranks call this together;
    `PeersError` on all of them where one cannot reach another's memory.
    """
    ranks = len(handles) // HANDLE_BYTES
    # The driver allocates and maps in the context in which torch works.
    counts = torch.zeros(rows, dtype=torch.int32, device=device)
    places = [slice(rank * HANDLE_BYTES, (rank + 1) * HANDLE_BYTES) for rank in range(ranks)]

    def lend() -> tuple[Driver, int]:
        driver = Driver()
        own = driver.allocate(size)
        bytes_at(own, size, device).zero_()
        torch.cuda.synchronize()
        handles[places[roster.rank]] = driver.lend(own)
        return driver, own

    driver, own = _together(lend, votes, roster)

    def borrow() -> list[int]:
        return [
            own if rank == roster.rank else driver.borrow(bytes(handles[place]))
            for rank, place in enumerate(places)
        ]

    try:
        addresses = _together(borrow, votes, roster)
    except PeersError:
        driver.free(own)
        raise
    programs = torch.cuda.get_device_properties(device).multi_processor_count
    return Boxes(torch.tensor(addresses, device=device), counts, roster.rank, programs)


def try_out(reduction: PeerMemory, ranks: int, votes: Votes, roster: Roster) -> None:
    """Add up once; `PeersError` on all ranks where one of them got something else.

    Some hosts say that GPUs reach each other, and garble what they write.
    """

    def add_up() -> None:
        part = reduction.part(1).fill_(1)
        if not reduction.add_sum_(torch.zeros_like(part)).eq(ranks).all():
            raise OSError("a sum over peers came out wrong")

    _together(add_up, votes, roster)


def _together(work: Callable[[], T], votes: Votes, roster: Roster) -> T:
    """Return what `work` does here; `PeersError` where it failed on any rank."""
    done, why = [], "another rank cannot; see its log"
    try:
        done.append(work())
    except OSError as error:
        why = str(error)
    if not votes.least(len(done), roster):
        raise PeersError(why)
    return done[0]
