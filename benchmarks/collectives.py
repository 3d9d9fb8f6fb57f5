"""Sums over ranks: whether they are right, and their times by size and path.

    python benchmarks/collectives.py [--device auto] [--ranks N] [--rounds 1000] [--width 2048]

On GPUs: a rank each, or two ranks on the only one, which then wait for each other's time slices.
First `--rounds` sums over peers of mixed sizes, launched and replayed from graphs in turns, are
compared with the same sums by torch, and between the ranks, to the bit; then the times of peers and
NCCL are printed, each the median of replayed graphs on the slowest rank. On CPUs (eight ranks): the
times of shared memory and gloo as rank 0 sees them; all ranks meet before each sum.

Ends with `ok` or `FAILED` and exit code 0 or 1.
"""

from __future__ import annotations

import argparse
import os
import random
import signal
import socket
import statistics
import sys
import time
import traceback
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial

os.environ.setdefault("OMP_NUM_THREADS", "1")
# Counting GPUs must not initialise CUDA in the process that is forked.
os.environ.setdefault("PYTORCH_NVML_BASED_CUDA_CHECK", "1")

import torch

from panel.server.distributed import backend_of, join, listening_socket, ranks_per_gpu
from panel.server.heartbeat import Ledger
from panel.server.kept.driver import HANDLE_BYTES
from panel.server.meeting import Barrier, Votes
from panel.server.nccl import describe_nccl
from panel.server.norm import RMSNorm
from panel.server.reduction import Distributed, Reduction, SharedMemory
from panel.server.roster import Roster
from panel.server.shared_memory import Arena
from panel.server.sum_table import measured_rows

SLOT_BYTES = 1 << 20
GRAIN = 2 << 20
CPU_WIDTH, CPU_ROWS = 256, (1, 8, 64, 512)
PEER_ROWS, CHUNK = 512, 8192
GRAPH_ROWS = (1, 7, 32)
LIMIT_S = 120
"""A rank that takes longer is ended: a sum over peers that goes wrong never comes back."""


@dataclass(frozen=True)
class Rank:
    """What one forked rank has."""

    rank: int
    ranks: int
    roster: Roster
    sums: Barrier
    meetings: Barrier
    votes: Votes
    arena: Arena
    store: socket.socket
    flags: argparse.Namespace

    def meet(self) -> None:
        """Wait for all ranks."""
        self.meetings.wait(self.roster)

    def slowest(self, us: float) -> float:
        """Return the longest of the times that the ranks call this with."""
        return max(self.votes.all(round(us * 1e3), self.roster)) / 1e3

    def say(self, text: str) -> None:
        """Print once for all ranks."""
        if self.rank == 0:
            print(text, flush=True)


def main() -> None:
    """Fork the ranks and wait for them."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--device", choices=("auto", "cpu", "cuda"), default="auto")
    parser.add_argument("--ranks", type=int)
    parser.add_argument("--rounds", type=int)
    parser.add_argument("--width", type=int, default=2048)
    flags = parser.parse_args()
    gpus = torch.cuda.device_count()
    if flags.device == "cpu" or (flags.device == "auto" and not gpus):
        body, ranks, flags.rounds = on_cpus, flags.ranks or 8, flags.rounds or 200
    else:
        body, ranks, flags.rounds = on_gpus, flags.ranks or max(2, gpus), flags.rounds or 1000
    torch.set_num_threads(1)
    sizes = {"roster": Roster.size(ranks), "ledger": 16 * ranks, "sums": 8, "meetings": 8}
    sizes |= {"votes": 8 * ranks, "handles": HANDLE_BYTES * ranks}
    arena = Arena({**sizes, "slots": 2 * ranks * SLOT_BYTES})
    cells = arena.bytes("ledger").cast("Q")
    roster = Roster(arena.bytes("roster"), ranks, LIMIT_S, Ledger(cells[:ranks], cells[ranks:]))
    meetings = Barrier(arena.bytes("meetings"), ranks)
    votes = Votes(arena.bytes("votes"), ranks, meetings)
    sums, store = Barrier(arena.bytes("sums"), ranks), listening_socket(ranks)
    children = []
    for rank in range(ranks):
        pid = os.fork()
        if pid == 0:
            mine = Rank(rank, ranks, roster, sums, meetings, votes, arena, store, flags)
            os._exit(live(mine, body))
        children.append(pid)
    codes = [os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) for pid in children]
    print("FAILED, exit codes of the ranks: " + " ".join(map(str, codes)) if any(codes) else "ok")
    sys.exit(any(codes))


def live(mine: Rank, body: Callable[[Rank], None]) -> int:
    """Be a rank; return its exit code."""
    signal.alarm(LIMIT_S)
    mine.roster.join(mine.rank, os.getpid(), step_of=lambda: 0, interrupted=lambda: None)
    try:
        with torch.inference_mode():
            body(mine)
    except BaseException:
        traceback.print_exc()
        return 1
    return 0


def on_cpus(mine: Rank) -> None:
    """Print the times of shared memory and gloo."""
    slots = mine.arena.tensor("slots", torch.float32).view(2, mine.ranks, -1)
    join("gloo", mine.store, mine.rank, mine.ranks, 60)
    buffer = torch.empty(max(CPU_ROWS), CPU_WIDTH)
    rounds = mine.flags.rounds
    paths: list[tuple[Reduction, int]] = [
        (SharedMemory(slots, buffer, mine.sums, mine.roster), rounds),
        (Distributed(buffer, "gloo"), max(10, rounds // 10)),
    ]
    mine.say(f"{mine.ranks} ranks, {os.cpu_count()} cores, microseconds")
    mine.say(f"{'bytes':>8} {'path':>5} {'median':>9} {'p95':>9}")
    for reduction, times in paths:
        for rows in CPU_ROWS:
            took = sorted(timed_on_cpu(mine, reduction, rows) for _ in range(times))
            median, late = statistics.median(took), took[int(len(took) * 0.95)]
            mine.say(f"{rows * CPU_WIDTH * 4:>8} {reduction.path:>5} {median:>9.0f} {late:>9.0f}")


def timed_on_cpu(mine: Rank, reduction: Reduction, rows: int) -> float:
    """Return the time of one sum in microseconds."""
    hidden = torch.zeros(rows, CPU_WIDTH)
    reduction.part(rows).zero_()
    mine.meet()
    begun = time.perf_counter()
    reduction.add_sum_(hidden)
    return (time.perf_counter() - begun) * 1e6


def on_gpus(mine: Rank) -> None:
    """Check the sums over peers, then print the times of all paths."""
    gpus = torch.cuda.device_count()
    device = torch.device("cuda", mine.rank % gpus)
    torch.cuda.set_device(device)
    backend = backend_of(device, mine.ranks)
    join(backend, mine.store, mine.rank, mine.ranks, 60)
    name = torch.cuda.get_device_name(device)
    mine.say(f"{mine.ranks} ranks, {gpus} x {name}, torch {torch.__version__}, {describe_nccl()}")
    if ranks_per_gpu(mine.ranks) > 1:
        mine.say("ranks share GPUs: times are those of the GPU's time slices")
    check(mine, torch.float32, mine.flags.rounds // 10)
    peers = check(mine, torch.bfloat16, mine.flags.rounds)
    paths = [peers]
    if backend == "nccl":
        paths.append(Distributed(torch.zeros_like(peers.part(CHUNK)), "nccl"))
    print_times(mine, paths)


def check(mine: Rank, dtype: torch.dtype, rounds: int) -> Reduction:
    """Compare sums over peers with torch's; raise `AssertionError` where they differ."""
    from panel.kernels.peer_sum import peer_sum_reference

    begun = time.perf_counter()
    peers, width = make_peers(mine, dtype), mine.flags.width
    device = torch.device("cuda", torch.cuda.current_device())
    source = torch.Generator(device)
    norm = RMSNorm.of(torch.ones(width, device=device, dtype=dtype), 1e-6)
    hiddens = {rows: torch.zeros(rows, width, device=device, dtype=dtype) for rows in GRAPH_ROWS}
    graphs = {rows: captured(partial(peers.add_sum_, hiddens[rows], norm)) for rows in GRAPH_ROWS}
    digest, wrong, off = (torch.zeros((), dtype=torch.int64, device=device) for _ in range(3))
    turns = random.Random(0)
    for step in range(rounds):
        graph = turns.random() < 0.5
        rows = turns.choice(GRAPH_ROWS if graph else (1, 2, 5, 33, PEER_ROWS, PEER_ROWS + 9))
        source.manual_seed(step)
        shape = (mine.ranks + 1, rows, width)
        *parts, before = torch.randn(shape, generator=source, device=device).to(dtype)
        peers.part(rows).copy_(parts[mine.rank])
        if graph:
            hidden, (replayed, normed) = hiddens[rows].copy_(before), graphs[rows]
            replayed.replay()
        else:
            hidden = before.clone()
            normed = peers.add_sum_(hidden, norm)
        total, expected = peer_sum_reference(torch.stack(parts), before, (norm.gain, norm.floor))
        assert expected is not None
        wrong += (hidden != total).sum()
        off += (~torch.isclose(normed, expected, atol=2e-2, rtol=2e-2)).sum()
        digest = digest * 31 + hidden.view(torch.int16).long().sum()
    digests = mine.votes.all(int(digest), mine.roster)
    took = time.perf_counter() - begun
    good = not int(wrong) and not int(off) and len(set(digests)) == 1
    found = (
        f"{int(wrong)} wrong sums, {int(off)} wrong norms, {len(set(digests))} different results"
    )
    mine.say(f"{'ok' if good else 'FAILED'}: {rounds} sums of {dtype}: {found}; {took:.1f} s")
    assert good, found
    return peers


def make_peers(mine: Rank, dtype: torch.dtype) -> Reduction:
    """Return the sums over peers, for rows of `--width` numbers."""
    from panel.kernels.boxes import box_bytes
    from panel.server.cuda.peers import PeerMemory, open_boxes

    device, width = torch.device("cuda", torch.cuda.current_device()), mine.flags.width
    size = box_bytes(mine.ranks, PEER_ROWS, width * dtype.itemsize)
    size = -(-size // GRAIN) * GRAIN
    handles = mine.arena.bytes("handles")
    boxes = open_boxes(PEER_ROWS, size, handles, mine.votes, mine.roster, device)
    return PeerMemory(torch.zeros(CHUNK, width, device=device, dtype=dtype), boxes)


def captured(run: Callable[[], torch.Tensor]) -> tuple[torch.cuda.CUDAGraph, torch.Tensor]:
    """Return a graph of `run`, which has run once before, and what it returned."""
    from panel.server.cuda.capture import capture

    run()
    return capture(run, None)


def print_times(mine: Rank, paths: list[Reduction]) -> None:
    """Print a line for each size: the sums of each path, alone and with the norm after them."""
    from panel.kernels.timing import microseconds

    width, part = mine.flags.width, paths[0].part(1)
    norm = RMSNorm.of(torch.ones_like(part[0]), 1e-6)
    mine.say("microseconds" + "".join(f"{p.path:>10}{p.path + '+norm':>12}" for p in paths))
    for rows in measured_rows(128, PEER_ROWS, CHUNK, PEER_ROWS):
        line = f"{rows * width * part.element_size():>10} B"
        # Many sums make little of how much later one rank starts; those of a shared GPU take long.
        calls = (2 if rows > PEER_ROWS else 10) * (5 if ranks_per_gpu(mine.ranks) == 1 else 1)
        for path in paths:
            path.part(rows).zero_()
            hidden = torch.zeros(rows, width, device=part.device, dtype=part.dtype)
            for call, room in ((path.add_sum_, 10), (partial(path.add_sum_, norm=norm), 12)):
                us = mine.slowest(microseconds([partial(call, hidden)] * calls))
                line += f"{us:>{room}.1f}"
        mine.say(line)


if __name__ == "__main__":
    main()
