"""The sum over peers in Triton's interpreter: real processes, boxes in memory that they share."""

from __future__ import annotations

import mmap
import os
from collections.abc import Callable

import pytest
import torch

pytest.importorskip("triton", reason="triton has wheels for Linux on x86-64 only")

import tests.kernels.interpreting  # noqa: F401
from panel.kernels.boxes import Boxes, box_bytes
from panel.kernels.norm import Norm
from panel.kernels.peer_sum import peer_sum, peer_sum_reference
from panel.server.cuda.peers import PeerMemory
from panel.server.norm import RMSNorm
from tests.support.forked import forked

ROWS = 6
"""Most rows of a sum."""


def run_ranks(ranks: int, row_bytes: int, body: Callable[[Boxes], None]) -> list[int]:
    """Run `body` in forked ranks with boxes for `ROWS` rows; return their exit codes."""
    size = box_bytes(ranks, ROWS, row_bytes)
    shared = torch.frombuffer(mmap.mmap(-1, ranks * size), dtype=torch.uint8).view(ranks, size)
    addresses = torch.tensor([box.data_ptr() for box in shared])

    def use(rank: int) -> None:
        # Fewer programs than rows: they take several each.
        body(Boxes(addresses, torch.zeros(ROWS, dtype=torch.int32), rank, programs=4))

    return forked(ranks, use)


def norm_of(width: int, dtype: torch.dtype) -> Norm:
    return torch.rand(width).to(dtype), torch.tensor(1e-3).to(dtype)


@pytest.mark.parametrize(
    ("ranks", "width", "dtype"),
    [(2, 64, torch.float32), (3, 72, torch.float16), (2, 40, torch.bfloat16)],
)
def test_all_ranks_get_the_sum_in_the_order_of_the_ranks(
    ranks: int, width: int, dtype: torch.dtype
) -> None:
    def body(boxes: Boxes) -> None:
        for step, rows in enumerate([1, 6, 2, 5, 1, 1, 3, 6, 6, 1]):
            torch.manual_seed(step)
            parts = torch.randn(ranks, rows, width).to(dtype)
            hidden, norm = torch.randn(rows, width).to(dtype), norm_of(width, dtype)
            expected, normed = peer_sum_reference(parts, hidden, norm)
            assert normed is not None
            result = peer_sum(parts[boxes.rank].clone(), hidden, boxes, norm if step % 2 else None)
            # The interpreter cuts bfloat16 off where a GPU rounds.
            slack = 2**-7 if dtype is torch.bfloat16 else 0.0
            assert torch.allclose(hidden, expected, atol=0.0, rtol=slack)
            if step % 2:
                assert torch.allclose(result, normed, atol=2e-2, rtol=2e-2)
            else:
                assert result is hidden
        # The first row was in every sum, the last in three of them.
        assert boxes.counts.tolist() == [10, 6, 5, 4, 4, 3]

    assert run_ranks(ranks, width * dtype.itemsize, body) == [0] * ranks


def test_counts_may_pass_the_largest_number() -> None:
    def body(boxes: Boxes) -> None:
        boxes.counts.fill_(2**31 - 3)
        for step in range(6):
            part, hidden = torch.full((1, 4), float(step + boxes.rank)), torch.zeros(1, 4)
            peer_sum(part, hidden, boxes)
            assert hidden.tolist() == [[2.0 * step + 1] * 4]

    assert run_ranks(2, 16, body) == [0, 0]


def test_a_hurried_rank_overwrites_nothing_that_is_still_read() -> None:
    """One rank is at its next sums while the other has not yet looked at the first."""

    def body(boxes: Boxes) -> None:
        for step in range(24):
            if step % 8 == boxes.rank * 4:
                # A rank that is late where the other is not.
                for _ in range(200):
                    os.sched_yield()
            part = torch.full((2, 4), float(step * 3 + boxes.rank))
            hidden = torch.zeros(2, 4)
            peer_sum(part, hidden, boxes)
            assert hidden.eq(6.0 * step + 1).all()

    assert run_ranks(2, 16, body) == [0, 0]


def test_larger_sums_go_through_in_pieces() -> None:
    def body(boxes: Boxes) -> None:
        peers = PeerMemory(torch.empty(20, 64), boxes)
        for step, rows in enumerate([17, 2, 20]):
            torch.manual_seed(step)
            parts, hidden = torch.randn(2, rows, 64), torch.randn(rows, 64)
            norm = RMSNorm.of(torch.rand(64), 1e-6)
            expected, _ = peer_sum_reference(parts, hidden)
            peers.part(rows).copy_(parts[boxes.rank])
            normed = peers.add_sum_(hidden, norm)
            assert torch.equal(hidden, expected)
            assert torch.allclose(normed, norm(hidden), atol=1e-5)

    assert run_ranks(2, 256, body) == [0, 0]
