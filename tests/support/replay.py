"""Turns a capture of an engine into living processes: `replay.py FOLDER SPEED [engine flags]`.

Titles, bytes, stopped states, exits and the health endpoint come at the captured moments, SPEED
times as fast. Every process plays its own part of the same events; nothing but a clock is shared.
At the moment at which the capture's operator stopped the engine the clock stands still until TERM
comes. A capture is an evidence folder (design section 6); a file `metrics.prom` in it is what
`/metrics` answers.
"""

from __future__ import annotations

import ctypes
import json
import mmap
import os
import re
import signal
import struct
import sys
import threading
import time
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any, NamedTuple

LOOK_S = 0.02
SILENT_MS = 2000
"""A probe that took so long had no answer."""
REFUSED, SILENT = 0, -1
_ACCESS = re.compile(rb'"GET /health HTTP/1\.1" (\d+)')
_LISTENS = b"Application startup complete."


class Step(NamedTuple):
    """Something that happens in the capture; `t` is seconds since its launch."""

    t: float
    kind: str
    pid: int
    ppid: int = 0
    word: str = ""
    """A title, a command or the letter of a state."""
    code: int = 0
    data: bytes = b""


class Health(NamedTuple):
    """What the endpoint does from `t` on: a status, REFUSED or SILENT."""

    t: float
    code: int


class Capture(NamedTuple):
    """One recorded launch."""

    steps: tuple[Step, ...]
    health: tuple[Health, ...]
    launcher: int
    stop_t: float | None
    metrics: bytes


def read_capture(folder: Path) -> Capture:
    """Return the capture in an evidence folder."""
    events = [json.loads(line) for line in (folder / "events.jsonl").read_text().splitlines()]
    chunks = list(_chunks(folder))
    launcher = next(event["pid"] for event in events if event["kind"] == "spawn")
    steps = [step for event in events if (step := _step(event)) is not None]
    steps += [Step(t, "write", launcher, data=data) for t, data in chunks]
    stops = [event["t"] for event in events if event["kind"] == "operator"]
    metrics = folder / "metrics.prom"
    return Capture(
        tuple(sorted(steps, key=lambda step: step.t)),
        tuple(_health(events, chunks)),
        launcher,
        min(stops, default=None),
        metrics.read_bytes() if metrics.exists() else b"",
    )


def _chunks(folder: Path) -> Iterator[tuple[float, bytes]]:
    data = (folder / "engine.log").read_bytes()
    pairs = [json.loads(line) for line in (folder / "engine.times").read_text().splitlines()]
    ends = [pair["offset"] for pair in pairs[1:]] + [len(data)]
    for pair, end in zip(pairs, ends, strict=True):
        yield pair["t"], data[pair["offset"] : end]


def _step(event: dict[str, Any]) -> Step | None:
    kind, t = event["kind"], event["t"]
    match kind:
        case "spawn":
            return Step(t, kind, event["pid"], event.get("ppid", 0), event.get("command", ""))
        case "title" | "state":
            return Step(t, kind, event["pid"], word=event[kind])
        case "exit":
            return Step(t, kind, event["pid"], code=event["code"] or 0)
    return None


def _health(events: list[dict[str, Any]], chunks: list[tuple[float, bytes]]) -> Iterator[Health]:
    """Yield what the endpoint did: as probes saw it, with the statuses that the log tells."""
    listens = next((t for t, data in chunks if _LISTENS in data), None)
    told = [(t, int(code)) for t, data in chunks for code in _ACCESS.findall(data)]
    found = [] if listens is None else [Health(listens, told[0][1] if told else 200)]
    found += [Health(t, code) for t, code in told]
    for event in events:
        if event["kind"] != "health" or listens is None or event["t"] < listens:
            continue
        if event["code"] == -1 and event["ms"] >= SILENT_MS:
            found.append(Health(event["t"], SILENT))
        elif event["code"] >= 0:
            found.append(Health(event["t"], event["code"]))
    yield from sorted(found, key=lambda each: each.t)


class Clock:
    """Seconds of the capture, shared by all processes that descend from its maker."""

    def __init__(self, speed: float, stop_t: float | None) -> None:
        self._page = mmap.mmap(-1, mmap.PAGESIZE)
        self._start = time.monotonic()
        self._speed = speed
        self._stop_t = stop_t

    def now(self) -> float:
        (resumed,) = struct.unpack_from("d", self._page)
        if resumed and self._stop_t is not None:
            return self._stop_t + (time.monotonic() - resumed) * self._speed
        t = (time.monotonic() - self._start) * self._speed
        return t if self._stop_t is None else min(t, self._stop_t - 1e-3)

    def resume(self) -> None:
        """Go on from the moment of the stop, at which everything before it is done."""
        struct.pack_into("d", self._page, 0, time.monotonic())

    def wait(self, t: float) -> None:
        while (left := t - self.now()) > 0:
            time.sleep(min(LOOK_S, max(1e-4, left / self._speed)))


def set_title(text: str) -> None:
    """Show `text` as the command line, as engines do, and leave the environment as it is."""
    stat = Path("/proc/self/stat").read_bytes()
    fields = stat[stat.rindex(b")") + 2 :].split()
    start, end = int(fields[45]), int(fields[46])
    data = text.encode()[: end - start - 1]
    ctypes.memmove(start, data.ljust(end - start, b"\0"), end - start)


def play(capture: Capture, clock: Clock, me: int) -> None:
    """Be the process `me` of the capture, and let it start those that it started; never return."""
    children: dict[int, int] = {}
    for step in capture.steps:
        if step.kind == "spawn" and step.ppid == me:
            clock.wait(step.t)
            if real := os.fork():
                children[step.pid] = real
            else:
                me, children = step.pid, {}
                signal.signal(signal.SIGTERM, signal.SIG_DFL)
                set_title(step.word)
        elif step.kind == "state" and step.pid in children:
            clock.wait(step.t)
            os.kill(children[step.pid], signal.SIGSTOP if step.word == "T" else signal.SIGCONT)
        elif step.pid == me and step.kind != "spawn":
            clock.wait(step.t)
            _do(step)
    while True:
        signal.pause()


def _do(step: Step) -> None:
    match step.kind:
        case "write":
            os.write(1, step.data)
        case "title":
            set_title(step.word)
        case "exit" if step.code < 0:
            os.kill(os.getpid(), -step.code)
        case "exit":
            os._exit(step.code)


def serve(capture: Capture, clock: Clock, port: int) -> None:
    """Answer on `port` as the engine did, from the moment on at which it listened."""

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            while (code := _now(capture.health, clock.now())) == SILENT:
                time.sleep(LOOK_S)
            metrics = self.path == "/metrics"
            if self.path != "/health" and not (metrics and capture.metrics):
                code = 404
            if code == REFUSED:
                return
            body = capture.metrics if metrics else b""
            self.send_response(code)
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

        def log_message(self, *_: object) -> None:
            return

    clock.wait(capture.health[0].t)
    ThreadingHTTPServer(("127.0.0.1", port), Handler).serve_forever()


def _now(health: tuple[Health, ...], t: float) -> int:
    return next((each.code for each in reversed(health) if each.t <= t), REFUSED)


def main(argv: list[str]) -> None:
    folder, speed, flags = Path(argv[0]), float(argv[1]), argv[2:]
    capture = read_capture(folder)
    clock = Clock(speed, capture.stop_t)
    signal.signal(signal.SIGCHLD, signal.SIG_IGN)
    if capture.stop_t is not None:
        signal.signal(signal.SIGTERM, lambda *_: clock.resume())
    if capture.health and "--port" in flags:
        port = int(flags[flags.index("--port") + 1])
        threading.Thread(target=serve, args=(capture, clock, port), daemon=True).start()
    play(capture, clock, capture.launcher)


if __name__ == "__main__":
    main(sys.argv[1:])
