"""The engine on CPU ranks: where the time of a step goes, and requests a second.

    python benchmarks/engine_cpu.py [--requests 200] [--mode NAME ...]

Serves the shipped model on eight ranks without the HTTP front end, once a mode. `control` is what
rank 0 does around the model (schedule, plan, sample, news), as wall time and as CPU time;
`collectives` are the sums and all-to-alls of rank 0 with its waits for the others; `compute` is the
rest of its forward pass; `gather` is its wait for the slowest rank afterwards. All are ms a step.

First comes the control path by itself, with followers that compute nothing: CPU time of rank 0 for
schedule, plan, encoding, meeting, sampling, commit and news, at batch 8, microseconds a step.
"""

from __future__ import annotations

import argparse
import functools
import json
import mmap
import os
import platform
import random
import socket
import statistics
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from panel.server.heartbeat import Ledger
from panel.server.spawner import preload

MODES: dict[str, list[str]] = {
    "tp8": [],
    "tp8 ep8": ["--ep-size=8"],
    "tp8 ep8 a2a": ["--ep-size=8", "--moe-a2a-backend=shm"],
    "dp8 ep8 a2a": ["--ep-size=8", "--moe-a2a-backend=shm", "--dp-attention"],
}
PARTS = ("step", "step cpu", "model", "model cpu", "collectives", "gather", "gather cpu", "steps")
DECODE_TOKENS = 200
GREEDY = {"temperature": 0.0}
TOP_P = {"temperature": 1.0, "top_p": 0.9}
BATCH, VOCABULARY = 8, 4096


def measure_parts(clock: memoryview) -> None:
    """Time the parts of rank 0's steps in all processes forked from now on."""
    from panel.server import exchange, leader, meeting, reduction, runner

    cells = clock.cast("d")

    def timed(owner: Any, name: str, part: str, *, cpu: bool = False, steps: bool = False) -> None:
        inner: Callable[..., Any] = getattr(owner, name)
        place = PARTS.index(part)

        def outer(*args: Any) -> Any:
            wall, used = time.perf_counter(), time.thread_time()
            try:
                return inner(*args)
            finally:
                if _comm(os.getpid()) == "moe-rank-0":
                    cells[place] += time.perf_counter() - wall
                    if cpu:
                        cells[place + 1] += time.thread_time() - used
                    if steps and not args[0]._scheduler.idle:
                        cells[PARTS.index("steps")] += 1

        setattr(owner, name, outer)

    timed(leader._Leader, "_step", "step", cpu=True, steps=True)
    timed(runner.Runner, "__call__", "model", cpu=True)
    timed(meeting.Rendezvous, "gather", "gather", cpu=True)
    timed(reduction.SharedMemory, "add_sum_", "collectives")
    timed(exchange.SharedMemoryExchange, "__call__", "collectives")


@functools.cache
def _comm(pid: int) -> str:
    return Path(f"/proc/{pid}/comm").read_text().strip()


class Client:
    """Speaks with rank 0 in place of the front end."""

    def __init__(self, connection: socket.socket, clock: memoryview) -> None:
        import msgspec

        from panel.server.messages import Frames, FromEngine

        self._connection = connection
        self._clock = clock.cast("d")
        self._frames = Frames()
        self._decoder = msgspec.msgpack.Decoder(FromEngine)
        while not any(type(message).__name__ == "Started" for message in self._receive()):
            pass

    def run(
        self, count: int, at_once: int, prompt: int, new: int, **sampling: float
    ) -> dict[str, float]:
        """Run requests, `at_once` at a time; return seconds, tokens and ms a step by part."""
        from panel.server.messages import Generate, Step

        numbers = random.Random(0)
        before = self._clock.tolist()
        began = time.perf_counter()
        sent = done = tokens = 0
        while done < count:
            while sent < count and sent - done < at_once:
                text = [numbers.randrange(4096) for _ in range(prompt)]
                self._send(Generate(f"{count}-{sent}", text, new, **(sampling or GREEDY)))
                sent += 1
            for message in self._receive():
                if isinstance(message, Step):
                    tokens += sum(len(news.tokens) for news in message.news)
                    done += sum(news.finish is not None for news in message.news)
        seconds = time.perf_counter() - began
        spent = dict(zip(PARTS, map(float.__sub__, self._clock.tolist(), before), strict=True))
        ms = {part: value * 1e3 / max(spent["steps"], 1) for part, value in spent.items()}
        return {
            "tokens a second": tokens / seconds,
            "requests a second": count / seconds,
            "control": ms["step"] - ms["model"] - ms["gather"],
            "control cpu": ms["step cpu"] - ms["model cpu"] - ms["gather cpu"],
            "compute": ms["model"] - ms["collectives"],
            "collectives": ms["collectives"],
            "gather": ms["gather"],
        }

    def stop(self) -> None:
        from panel.server.messages import Drain

        self._send(Drain(0))
        while self._receive():
            pass

    def _send(self, message: Any) -> None:
        from panel.server.messages import encode

        self._connection.sendall(encode(message))

    def _receive(self) -> list[Any]:
        data = self._connection.recv(1 << 16)
        return [self._decoder.decode(body) for body in self._frames.feed(data)] if data else []


def run_mode(name: str, requests: int, clock: memoryview) -> dict[str, dict[str, float]]:
    """Serve one mode; return the results by workload."""
    from panel.server.checks import prepare
    from panel.server.gang import fork_gang
    from panel.server.options import parse

    with socket.create_server(("127.0.0.1", 0)) as free:
        port = free.getsockname()[1]
    flags = ["--context-length=512", "--disable-prefix-cache", f"--port={port}", *MODES[name]]
    with tempfile.TemporaryDirectory() as folder:
        result, log = Path(folder, "result"), str(Path(folder, "log"))

        def frontend(options: object, engine: socket.socket, *_: object) -> int:
            client = Client(engine, clock)
            client.run(4, 4, 64, 16)
            answers = {
                "decode, 1 stream": client.run(1, 1, 4, DECODE_TOKENS),
                "decode, 8 streams": client.run(8, 8, 4, DECODE_TOKENS),
                "decode, 8 streams, top-p 0.9": client.run(8, 8, 4, DECODE_TOKENS, **TOP_P),
                "requests 64 + 32, 16 at once": client.run(requests, 16, 64, 32),
            }
            client.stop()
            result.write_text(json.dumps(answers))
            return 0

        lifeline, keep = os.pipe()
        sources = [*(f"rank-{rank}" for rank in range(8)), "frontend"]
        pids = fork_gang(
            prepare(parse(flags)), frontend, dict.fromkeys(sources, log), lifeline, keep
        )
        codes = {name: os.waitpid(pid, 0)[1] for name, pid in pids.items()}
        os.close(lifeline)
        os.close(keep)
        if any(codes.values()):
            sys.exit(f"{codes}\n{Path(log).read_text()[-3000:]}")
        answers: dict[str, dict[str, float]] = json.loads(result.read_text())
        return answers


def control_alone(sampling: dict[str, float], steps: int = 1500) -> list[float]:
    """Return the CPU time of each step of the control path, in microseconds."""
    import numpy as np

    from panel.server.cache import Cache
    from panel.server.meeting import Rendezvous
    from panel.server.messages import Generate, Step, encode
    from panel.server.pages import PageAllocator
    from panel.server.plan import encode_plan
    from panel.server.roster import Roster
    from panel.server.sampler import sample
    from panel.server.schedule import Limits
    from panel.server.scheduler import Scheduler
    from panel.server.sequence import Sequence

    cells = [memoryview(mmap.mmap(-1, 1 << 12)) for _ in range(4)]
    ledger = Ledger(cells[0].cast("Q"), cells[1].cast("Q"))
    roster = Roster(cells[2][: Roster.size(8)], 8, 60.0, ledger)
    rendezvous = Rendezvous(cells[3][:8], memoryview(mmap.mmap(-1, 1 << 16)), 8)
    followers = []
    for rank in range(1, 8):
        if not (pid := os.fork()):
            roster.join(rank, os.getpid(), step_of=lambda: 0, interrupted=lambda: None)
            while rendezvous.follow(roster):
                pass
            os._exit(0)
        followers.append(pid)
    roster.join(0, os.getpid(), step_of=lambda: 0, interrupted=lambda: None)
    limits = Limits(VOCABULARY, 2048, 16, 512, (1, 2, 4, 8, 16), 0)
    scheduler = Scheduler(
        limits,
        [Cache(PageAllocator(2048, 16), share=True)],
        lambda request, limit: Sequence(request, limit, random.Random(request.rid)),
    )
    for number in range(BATCH):
        scheduler.add(Generate(str(number), [1] * 20, 2 * steps, **sampling))
    # Top-p leaves about a hundred tokens, as with the shipped model.
    logits = np.random.default_rng(0).standard_normal((64, VOCABULARY)).astype(np.float32) * 3.3
    spent = []
    rendezvous.gather(roster)
    for step in range(steps):
        begun = time.thread_time()
        scheduled = scheduler.next()
        plan = scheduled.plan
        rendezvous.release(encode_plan(plan))
        waiting = time.thread_time()
        rendezvous.gather(roster)
        waited = time.thread_time()
        rows = logits[step % 56 : step % 56 + BATCH]
        choices = sample(rows, scheduled.sampled, plan.logit_begins)
        encode(Step(scheduler.commit(scheduled, choices)))
        spent.append((time.thread_time() - waited + waiting - begun) * 1e6)
    rendezvous.release(b"")
    for pid in followers:
        os.waitpid(pid, 0)
    return spent


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawTextHelpFormatter
    )
    parser.add_argument("--requests", type=int, default=200)
    parser.add_argument("--mode", choices=MODES, nargs="*", default=list(MODES))
    arguments = parser.parse_args()
    preload()
    clock = memoryview(mmap.mmap(-1, 8 * len(PARTS)))
    measure_parts(clock)
    print(
        f"{platform.processor() or platform.machine()}, {os.cpu_count()} cores, moe-tiny, 8 ranks"
    )
    print(f"load {os.getloadavg()[0]:.1f}\n")
    for name, sampling in (("greedy", GREEDY), ("temperature 1, top-p 0.9", TOP_P)):
        spent = statistics.quantiles(control_alone(sampling), n=10)
        print(f"control alone, {name:26} median {spent[4]:4.0f} us, worst tenth {spent[8]:4.0f} us")
    columns = ("control", "control cpu", "compute", "collectives", "gather")
    print(
        f"\n{'mode':12} {'workload':30} {'tok/s':>7} {'req/s':>6}  "
        + " ".join(f"{c:>11}" for c in columns)
    )
    for name in arguments.mode:
        for workload, row in run_mode(name, arguments.requests, clock).items():
            parts = " ".join(f"{row[column]:11.3f}" for column in columns)
            print(
                f"{name:12} {workload:30} {row['tokens a second']:7.0f} "
                f"{row['requests a second']:6.1f}  {parts}",
                flush=True,
            )


if __name__ == "__main__":
    main()
