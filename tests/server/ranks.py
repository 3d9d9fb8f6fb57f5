"""Ranks without scheduler and front end: plans in, logits out.

`Ranks` keeps a warm process. For each order it forks as many ranks as the flags say, which start as
in a real gang and then run the given plans one after the other; the answer is what rank 0 finds
among the shared logits after each, and what each rank reports of itself.
"""

from __future__ import annotations

import os
import pickle
import socket
import struct
import subprocess
import sys
import tempfile
import traceback
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import torch

from panel.server.location import Table
from panel.server.messages import RankMemory, Rebalanced
from panel.server.plan import Plan, Work
from panel.server.runner import Runner

_LENGTH = struct.Struct("<Q")


@dataclass
class ExpertsReport:
    """Where a rank thinks that the experts are, and what it knows of their load."""

    table: Table
    load: list[list[int]]
    rebalances: int
    last: Rebalanced | None


@dataclass
class Outcome:
    """What the ranks of one order did."""

    logits: list[torch.Tensor]
    """For each plan with tokens the wanted rows, [rows, vocabulary]."""
    memory: list[RankMemory]
    pages: int
    experts: list[ExpertsReport]
    """By rank, after the last plan; empty where experts have no places."""
    drafts: list[list[list[int]]] = field(default_factory=list)
    """For each plan with tokens what was drafted last for each of its first sequences."""


@dataclass
class Order:
    """Flags by name with underscores, and plans."""

    flags: dict[str, object]
    plans: list[Plan]


class RanksError(Exception):
    """A rank ended with an exception: all tracebacks."""


class Ranks:
    """The warm process."""

    def __init__(self) -> None:
        self._socket, theirs = socket.socketpair()
        self._process = subprocess.Popen(
            [sys.executable, "-m", "tests.server.ranks", str(theirs.fileno())],
            pass_fds=(theirs.fileno(),),
            cwd=Path(__file__).parents[2],
        )
        theirs.close()

    def run(self, *plans: Plan, **flags: object) -> Outcome:
        """Start ranks and let them run `plans`."""
        _send(self._socket, Order(flags, list(plans)))
        answer = _receive(self._socket)
        if isinstance(answer, str):
            raise RanksError(answer)
        assert isinstance(answer, Outcome)
        return answer

    def close(self) -> None:
        self._socket.close()
        self._process.wait(10)


def _send(connection: socket.socket, value: object) -> None:
    body = pickle.dumps(value)
    connection.sendall(_LENGTH.pack(len(body)) + body)


def _receive(connection: socket.socket) -> object:
    def exactly(size: int) -> bytes:
        data = b""
        while len(data) < size:
            piece = connection.recv(size - len(data))
            if not piece:
                raise EOFError
            data += piece
        return data

    return pickle.loads(exactly(_LENGTH.unpack(exactly(_LENGTH.size))[0]))


def _serve(order: Order) -> Outcome | str:
    from panel.server.checks import prepare
    from panel.server.options import resolve

    texts = {name.replace("_", "-"): str(value) for name, value in order.flags.items()}
    with socket.create_server(("127.0.0.1", 0)) as free:
        texts.setdefault("port", str(free.getsockname()[1]))
    gang = prepare(resolve(texts))
    gang.listener.close()
    with tempfile.TemporaryDirectory() as folder:
        pids = []
        store = _store(gang)
        for rank in range(gang.options.tp_size):
            pids.append(os.fork())
            if pids[-1] == 0:
                _be_rank(gang, rank, order, store, Path(folder) / str(rank))
        codes = [os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) for pid in pids]
        results = [(Path(folder) / str(rank)).read_bytes() for rank in range(len(pids))]
        if any(codes):
            return "\n".join(
                f"rank {rank}: {pickle.loads(result) if result else code}"
                for rank, (result, code) in enumerate(zip(results, codes, strict=True))
            )
        outcomes = [pickle.loads(result) for result in results]
        outcomes[0].experts = [report for outcome in outcomes for report in outcome.experts]
        outcome: Outcome = outcomes[0]
        return outcome


def _store(gang: Any) -> socket.socket | None:
    from panel.server.gang import store_socket

    return store_socket(gang)


def _be_rank(gang: Any, rank: int, order: Order, store: socket.socket | None, path: Path) -> None:
    from panel.server.gang import place_of
    from panel.server.life import Life
    from panel.server.startup import start

    code = 1
    path.touch()
    try:
        place = place_of(gang, rank, store)
        life = Life(rank, place.shared.heartbeats, place.events, None)
        place.shared.roster.join(
            rank, os.getpid(), step_of=lambda: life.step, interrupted=lambda: None
        )
        logits, drafts = [], []
        with torch.inference_mode():
            ready = start(place, life)
            for plan in order.plans:
                ready.runner(plan)
                place.shared.barrier.wait(place.shared.roster)
                if plan.work is not Work.REBALANCE:
                    logits.append(_wanted(plan, ready.runner.logits))
                    drafts.append([] if ready.head is None else ready.head.told.tolist())
                place.shared.barrier.wait(place.shared.roster)
        reports = _reports(ready.runner)
        outcome = Outcome(logits, ready.memory, ready.pages, reports, drafts)
        path.write_bytes(pickle.dumps(outcome))
        code = 0
    except BaseException:
        path.write_bytes(pickle.dumps(traceback.format_exc()))
    finally:
        os._exit(code)


def _reports(runner: Runner) -> list[ExpertsReport]:
    rebalancer = runner.rebalancer
    if rebalancer is None:
        return []
    load = rebalancer.load().tolist()
    return [ExpertsReport(rebalancer.table, load, runner.rebalances, runner.rebalanced)]


def _wanted(plan: Plan, logits: torch.Tensor) -> torch.Tensor:
    """Return the rows of logits of a plan's real tokens, copied."""
    rows = []
    segments = [*plan.decoding, *(s for s in plan.prefilling if s.logits)]
    for number, (segment, begin) in enumerate(zip(segments, plan.logit_begins, strict=True)):
        count = len(segment.tokens) if number < len(plan.decoding) else 1
        rows.append(logits[begin : begin + count])
    return torch.cat(rows).clone() if rows else logits[:0].clone()


def main() -> None:
    """Serve orders until the socket closes."""
    for name in ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS"):
        os.environ[name] = "1"
    torch.set_num_threads(1)
    connection = socket.socket(fileno=int(sys.argv[1]))
    while True:
        try:
            order = _receive(connection)
        except EOFError:
            return
        assert isinstance(order, Order)
        try:
            answer: Outcome | str = _serve(order)
        except Exception:
            answer = traceback.format_exc()
        _send(connection, answer)


if __name__ == "__main__":
    from tests.server import ranks

    ranks.main()
