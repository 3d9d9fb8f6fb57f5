"""Time of one all-reduce between CPU ranks: shared memory against gloo.

    python benchmarks/allreduce.py [--ranks 8] [--rounds 200]

Prints the median and the 95th percentile in microseconds by message size, as rank 0 sees them; all
ranks meet before each sum, so that only the sum itself is timed.
"""

from __future__ import annotations

import argparse
import os
import socket
import statistics
import time
from collections.abc import Callable

os.environ.setdefault("OMP_NUM_THREADS", "1")

import torch

from panel.server.distributed import join, listening_socket
from panel.server.heartbeat import Ledger
from panel.server.meeting import Barrier
from panel.server.reduction import Distributed, Reduction, SharedMemory
from panel.server.roster import Roster
from panel.server.shared_memory import Arena

WIDTH = 256
ROWS = (1, 8, 64, 512)
SLOT_BYTES = 1 << 20


def measure(
    make: Callable[[], Reduction], meet: Callable[[], None], rounds: int
) -> list[list[float]]:
    """Return the times of `rounds` sums for each of `ROWS`, in microseconds."""
    reduction = make()
    table = []
    for rows in ROWS:
        hidden = torch.zeros(rows, WIDTH)
        times = []
        for _ in range(rounds):
            reduction.part(rows).zero_()
            meet()
            begun = time.perf_counter()
            reduction.add_sum_(hidden)
            times.append((time.perf_counter() - begun) * 1e6)
        table.append(times)
    return table


def main() -> None:
    """Fork the ranks; rank 0 prints."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--ranks", type=int, default=8)
    parser.add_argument("--rounds", type=int, default=200)
    flags = parser.parse_args()
    ranks: int = flags.ranks
    torch.set_num_threads(1)
    sizes = {"roster": Roster.size(ranks), "ledger": 16 * ranks, "a": 8, "b": 8}
    arena = Arena({**sizes, "slots": 2 * ranks * SLOT_BYTES})
    cells = arena.bytes("ledger").cast("Q")
    roster = Roster(arena.bytes("roster"), ranks, 300, Ledger(cells[:ranks], cells[ranks:]))
    sums, meetings = Barrier(arena.bytes("a"), ranks), Barrier(arena.bytes("b"), ranks)
    store = listening_socket(ranks)
    children = []
    for rank in range(ranks):
        pid = os.fork()
        if pid == 0:
            run_rank(rank, ranks, roster, sums, meetings, arena, store, flags.rounds)
            os._exit(0)
        children.append(pid)
    for pid in children:
        os.waitpid(pid, 0)


def run_rank(
    rank: int,
    ranks: int,
    roster: Roster,
    sums: Barrier,
    meetings: Barrier,
    arena: Arena,
    store: socket.socket,
    rounds: int,
) -> None:
    """Measure both paths as one rank."""
    roster.join(rank, os.getpid(), step_of=lambda: 0, interrupted=lambda: None)

    def meet() -> None:
        meetings.wait(roster)

    def shared() -> Reduction:
        slots = arena.tensor("slots", torch.float32).view(2, ranks, -1)
        return SharedMemory(slots, torch.empty(max(ROWS), WIDTH), sums, roster)

    def gloo() -> Reduction:
        join("gloo", store, rank, ranks, 60)
        return Distributed(torch.empty(max(ROWS), WIDTH), "gloo")

    with torch.inference_mode():
        tables = {
            "shm": measure(shared, meet, rounds),
            "gloo": measure(gloo, meet, max(10, rounds // 10)),
        }
    if rank == 0:
        print(f"{ranks} ranks, {os.cpu_count()} cores, microseconds")
        print(f"{'bytes':>8} {'path':>5} {'median':>9} {'p95':>9}")
        for path, table in tables.items():
            for rows, times in zip(ROWS, table, strict=True):
                times.sort()
                p95 = times[int(len(times) * 0.95)]
                print(
                    f"{rows * WIDTH * 4:>8} {path:>5} {statistics.median(times):>9.0f} {p95:>9.0f}"
                )


if __name__ == "__main__":
    main()
