"""The sums over ranks, in real processes."""

from __future__ import annotations

import os
import traceback
from collections.abc import Callable

import pytest
import torch

from panel.server.heartbeat import Ledger
from panel.server.meeting import Barrier, Votes
from panel.server.reduction import SharedMemory
from panel.server.roster import PeerLostError, Roster
from panel.server.shared_memory import Arena

WIDTH = 32


def run_ranks(ranks: int, timeout: float, body: Callable[[int, Roster, Arena], None]) -> list[int]:
    """Run `body` in forked ranks; return their exit codes."""
    sizes = {"roster": Roster.size(ranks), "ledger": 16 * ranks}
    arena = Arena({**sizes, "slots": 2 * ranks * 16 * WIDTH * 4})
    cells = arena.bytes("ledger").cast("Q")
    roster = Roster(arena.bytes("roster"), ranks, timeout, Ledger(cells[:ranks], cells[ranks:]))
    pids = []
    for rank in range(ranks):
        pid = os.fork()
        if pid == 0:
            code = 1
            try:
                roster.join(rank, os.getpid(), step_of=lambda: 7, interrupted=lambda: None)
                body(rank, roster, arena)
                code = 0
            except BaseException:
                traceback.print_exc()
            finally:
                os._exit(code)
        pids.append(pid)
    return [os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) for pid in pids]


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
