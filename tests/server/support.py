"""Real gangs for tests: start one, speak its messages, watch its processes end."""

from __future__ import annotations

import contextlib
import json
import os
import select
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import msgspec

from panel.server.messages import (
    Frames,
    FromEngine,
    Generate,
    Started,
    Stats,
    Step,
    ToEngine,
    Tokens,
    encode,
)

DEADLINE = 60.0
_decoder = msgspec.msgpack.Decoder(FromEngine)


@dataclass
class Answer:
    """What came back for one request."""

    tokens: list[int] = field(default_factory=list)
    pieces: list[Tokens] = field(default_factory=list)

    @property
    def last(self) -> Tokens:
        return self.pieces[-1]


class Gang:
    """One running engine without its front end."""

    def __init__(self, far: socket.socket, exits: int, lifeline: int, logs: dict[str, str]) -> None:
        self.far = far
        self.lifeline = lifeline
        self.logs = logs
        self.started: Started | None = None
        self.stats: Stats | None = None
        self.exits: list[tuple[str, int]] = []
        self.pids: dict[str, int] = {}
        self.refusal: dict[str, Any] | None = None
        self._exits = exits
        self._lines = b""
        self._frames = Frames()
        self.answers: dict[str, Answer] = {}
        first = self._report()
        if "pids" in first:
            self.pids = first["pids"]
        else:
            self.refusal = first

    def log(self, source: str) -> str:
        return Path(self.logs[source]).read_text()

    def send(self, message: ToEngine) -> None:
        if isinstance(message, Generate):
            self.answers[message.rid] = Answer()
        self.far.sendall(encode(message))

    def receive(self, until: float) -> list[FromEngine]:
        """Return the next messages; an empty list where the engine has closed the socket."""
        while True:
            left = until - time.monotonic()
            assert left > 0, "the engine says nothing more:\n" + self.log("rank-0")[-2000:]
            self.far.settimeout(left)
            try:
                data = self.far.recv(1 << 16)
            except TimeoutError:
                continue
            except ConnectionError:
                data = b""
            if not data:
                return []
            messages = [_decoder.decode(body) for body in self._frames.feed(data)]
            for message in messages:
                self._note(message)
            if messages:
                return messages

    def wait_started(self) -> Started:
        until = time.monotonic() + DEADLINE
        while self.started is None:
            assert self.receive(until), "the engine ended:\n" + self.log("rank-0")[-3000:]
        return self.started

    def generate(self, *requests: Generate) -> list[Answer]:
        """Send requests together and return their whole answers."""
        for request in requests:
            self.send(request)
        return self.collect(*(request.rid for request in requests))

    def collect(self, *rids: str) -> list[Answer]:
        until = time.monotonic() + DEADLINE
        answers = [self.answers[rid] for rid in rids]
        while not all(a.pieces and a.last.finish for a in answers):
            assert self.receive(until), "the engine ended:\n" + self.log("rank-0")[-3000:]
        return answers

    def wait_stats(self) -> Stats:
        """Return the first stats sent from now on."""
        until = time.monotonic() + DEADLINE
        while True:
            for message in self.receive(until):
                if isinstance(message, Stats):
                    return message

    def wait_exits(self, count: int | None = None) -> dict[str, int]:
        """Return the exit codes once `count` processes, by default all, have ended."""
        while len(self.exits) < (len(self.pids) if count is None else count):
            name, code = self._report()["exit"]
            self.exits.append((name, code))
        return dict(self.exits)

    def signal(self, source: str, number: int) -> None:
        os.kill(self.pids[source], number)

    def terminate(self) -> dict[str, int]:
        """Ask all processes to stop; return their exit codes."""
        for source in self.pids:
            if source != "frontend":
                self.signal(source, signal.SIGTERM)
        return self.wait_exits()

    def close(self) -> None:
        ended = dict(self.exits)
        for source, pid in self.pids.items():
            if source not in ended:
                with contextlib.suppress(ProcessLookupError):
                    os.kill(pid, signal.SIGKILL)
        self.wait_exits()
        for descriptor in (self._exits, self.lifeline):
            if descriptor >= 0:
                os.close(descriptor)
        self.far.close()

    def _note(self, message: FromEngine) -> None:
        match message:
            case Started():
                self.started = message
            case Stats():
                self.stats = message
            case Step(news):
                for item in news:
                    if item.rid in self.answers:
                        answer = self.answers[item.rid]
                        answer.tokens += item.tokens
                        answer.pieces.append(item)

    def _report(self) -> dict[str, Any]:
        until = time.monotonic() + DEADLINE
        while b"\n" not in self._lines:
            ready, _, _ = select.select([self._exits], [], [], max(0.0, until - time.monotonic()))
            assert ready, f"processes do not end: {self.pids}, ended: {self.exits}"
            data = os.read(self._exits, 1 << 16)
            assert data, "the parent of the gang died"
            self._lines += data
        line, _, self._lines = self._lines.partition(b"\n")
        report: dict[str, Any] = json.loads(line)
        return report


def wait_until(condition: Callable[[], bool]) -> None:
    """Return once `condition` holds; fail at the deadline."""
    until = time.monotonic() + DEADLINE
    while not condition():
        assert time.monotonic() < until, "it never came true"
        time.sleep(0.01)


class Nursery:
    """Starts gangs from one warm process."""

    def __init__(self, module: str = "tests.server.nursery") -> None:
        ours, theirs = socket.socketpair()
        self._orders = ours
        self._process = subprocess.Popen(
            [sys.executable, "-m", module, str(theirs.fileno())],
            pass_fds=(theirs.fileno(),),
            cwd=Path(__file__).parents[2],
        )
        theirs.close()

    @contextlib.contextmanager
    def gang(self, folder: Path, **flags: object) -> Iterator[Gang]:
        """Start a gang with its logs in `folder`; keyword `tp_size=2` is `--tp-size=2`."""
        flags.setdefault("port", free_port())
        argv = [f"--{name.replace('_', '-')}={value}" for name, value in flags.items()]
        ranks = int(str(flags.get("tp_size", 8)))
        sources = [*(f"rank-{rank}" for rank in range(ranks)), "frontend"]
        logs = {source: str(folder / f"{source}.log") for source in sources}
        near, far = socket.socketpair()
        lifeline, keep = os.pipe()
        exits, report = os.pipe()
        order = json.dumps({"argv": argv, "logs": logs}).encode()
        socket.send_fds(self._orders, [order], [far.fileno(), lifeline, report])
        far.close()
        os.close(lifeline)
        os.close(report)
        gang = Gang(near, exits, keep, logs)
        try:
            yield gang
        finally:
            gang.close()

    def close(self) -> None:
        self._orders.close()
        self._process.wait(10)


def free_port() -> int:
    with socket.create_server(("127.0.0.1", 0)) as server:
        port: int = server.getsockname()[1]
        return port
