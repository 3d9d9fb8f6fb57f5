"""The sums over ranks, in real processes."""

from __future__ import annotations

import os
from collections.abc import Callable

import pytest
import torch

from panel.server.distributed import join, listening_socket
from panel.server.heartbeat import Ledger
from panel.server.meeting import Barrier, Votes
from panel.server.norm import RMSNorm
from panel.server.reduction import Alone, Distributed, Fastest, SharedMemory
from panel.server.roster import PeerLostError, Roster
from panel.server.shared_memory import Arena
from panel.server.sum_table import SumTable, Timing
from tests.support.forked import forked

WIDTH = 32


def run_ranks(ranks: int, timeout: float, body: Callable[[int, Roster, Arena], None]) -> list[int]:
    """Run `body` in forked ranks; return their exit codes."""
    sizes = {"roster": Roster.size(ranks), "ledger": 16 * ranks}
    arena = Arena({**sizes, "slots": 2 * ranks * 16 * WIDTH * 4})
    cells = arena.bytes("ledger").cast("Q")
    roster = Roster(arena.bytes("roster"), ranks, timeout, Ledger(cells[:ranks], cells[ranks:]))

    def use(rank: int) -> None:
        roster.join(rank, os.getpid(), step_of=lambda: 7, interrupted=lambda: None)
        body(rank, roster, arena)

    return forked(ranks, use)


def parts(ranks: int, step: int, rows: int) -> torch.Tensor:
    return torch.randn(ranks, rows, WIDTH, generator=torch.Generator().manual_seed(step))


@pytest.mark.parametrize("ranks", [2, 8])
def test_sums_are_torch_sums_in_rank_order_on_every_rank(ranks: int) -> None:
    barrier = Barrier(Arena({"barrier": 8}).bytes("barrier"), ranks)

    def body(rank: int, roster: Roster, arena: Arena) -> None:
        slots = arena.tensor("slots", torch.float32).view(2, ranks, -1)
        reduction = SharedMemory(slots, torch.empty(50, WIDTH), barrier, roster)
        # 16 rows fill a slot: 50 go through in four pieces.
        for step, rows in enumerate([1, 3, 16, 17, 50, 1, 1] * 20):
            mine = parts(ranks, step, rows)
            reduction.part(rows).copy_(mine[rank])
            hidden = torch.ones(rows, WIDTH)
            reduction.add_sum_(hidden)
            mine[0] += 1
            assert torch.equal(hidden, torch.sum(mine, 0))

    assert run_ranks(ranks, 30, body) == [0] * ranks


def test_the_norm_of_a_sum_comes_with_it() -> None:
    norm = RMSNorm.of(torch.rand(WIDTH), 1e-6)
    reduction = Alone(torch.rand(4, WIDTH))
    hidden = torch.rand(3, WIDTH)
    expected = hidden + reduction.part(3)
    normed = reduction.add_sum_(hidden, norm)
    assert torch.equal(hidden, expected)
    assert torch.equal(normed, norm(expected))
    assert reduction.add_sum_(hidden) is hidden


@pytest.mark.filterwarnings("ignore::UserWarning")
def test_gloo_adds_up_and_normalises() -> None:
    store = listening_socket(2)
    norm = RMSNorm.of(torch.rand(WIDTH), 1e-6)

    def body(rank: int, roster: Roster, _: Arena) -> None:
        join("gloo", store, rank, 2, 30)
        reduction = Distributed(torch.empty(5, WIDTH), "gloo")
        for step, rows in enumerate([1, 5, 2]):
            mine = parts(2, step, rows)
            reduction.part(rows).copy_(mine[rank])
            hidden = torch.ones(rows, WIDTH)
            normed = reduction.add_sum_(hidden, norm)
            assert torch.allclose(hidden, mine.sum(0) + 1)
            assert torch.equal(normed, norm(hidden))

    assert run_ranks(2, 30, body) == [0, 0]
    store.close()


class _Tagged(Alone):
    """Adds a number of its own, by which it is known."""

    def __init__(self, buffer: torch.Tensor, tag: float) -> None:
        super().__init__(buffer)
        self._tag = tag

    def add_sum_(self, hidden: torch.Tensor, norm: RMSNorm | None = None) -> torch.Tensor:
        return super().add_sum_(hidden.add_(self._tag), norm)


def test_each_size_takes_its_fastest_path() -> None:
    buffer = torch.ones(10, WIDTH)
    table = SumTable((Timing(2, "b", 1.0), Timing(2, "a", 2.0), Timing(8, "a", 3.0)))
    fastest = Fastest(buffer, {"a": _Tagged(buffer, 10), "b": _Tagged(buffer, 20)}, table)
    assert fastest.path == "a+b"
    for rows, expected in [(1, 21), (2, 21), (3, 11), (10, 11), (2, 21)]:
        assert fastest.part(rows).shape == (rows, WIDTH)
        assert fastest.add_sum_(torch.zeros(rows, WIDTH)).eq(expected).all()


def test_the_least_vote_counts_for_all() -> None:
    arena = Arena({"barrier": 8, "votes": 32})
    barrier = Barrier(arena.bytes("barrier"), 4)
    votes = Votes(arena.bytes("votes"), 4, barrier)

    def body(rank: int, roster: Roster, _: Arena) -> None:
        for turn in range(50):
            assert votes.least((rank + turn) % 4 + 10, roster) == 10

    assert run_ranks(4, 30, body) == [0] * 4


def test_a_dead_rank_is_named() -> None:
    barrier = Barrier(Arena({"barrier": 8}).bytes("barrier"), 3)

    def body(rank: int, roster: Roster, _: Arena) -> None:
        barrier.wait(roster)
        if rank == 1:
            os._exit(3)
        with pytest.raises(PeerLostError, match=r"rank 1 \(pid \d+\) is gone at step 7"):
            barrier.wait(roster)

    assert run_ranks(3, 30, body) == [0, 3, 0]
