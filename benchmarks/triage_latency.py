"""How long after a death the verdict is seen: by a client of the events stream, and on screen.

    python benchmarks/triage_latency.py [--rounds 10] [--signal SEGV]

Each round launches the embedded engine, waits until it serves, and sends a signal to one rank. The
clock starts with the signal, so that what the dying process itself takes (a segmentation fault
dumps its stacks first) is part of it. The panel runs in a terminal of 80x24 at its usual rate.
"""

from __future__ import annotations

import argparse
import json
import os
import platform
import pty
import signal
import socket
import statistics
import struct
import subprocess
import sys
import tempfile
import termios
import threading
import time
from fcntl import ioctl
from pathlib import Path
from typing import Any

import httpx

RANK = 5
WITHIN_S = 20.0
ROWS = ("death noted by the keeper", "verdict at a client", "verdict on screen")
TARGETS = ("", "≤ 500", "≤ 500")
MOEPANEL = [sys.executable, "-m", "panel.cli"]


def moepanel(home: Path, *words: str) -> str:
    """Run a command that must succeed; return what it prints."""
    done = subprocess.run(
        [*MOEPANEL, *words],
        env={**os.environ, "MOEPANEL_HOME": str(home)},
        capture_output=True,
        text=True,
        check=False,
    )
    if done.returncode:
        sys.exit(f"moepanel {' '.join(words)}: {done.stderr}{done.stdout}")
    return done.stdout


class Watch(threading.Thread):
    """A client of the events stream that notes when a launch's verdict names the rank."""

    def __init__(self, path: str, launch: int) -> None:
        super().__init__(daemon=True)
        self._path, self._launch = path, launch
        self.attached, self.seen = threading.Event(), threading.Event()
        self.at = 0.0

    def run(self) -> None:
        """Read until then."""
        with (
            httpx.Client(transport=httpx.HTTPTransport(uds=self._path), timeout=60) as client,
            client.stream("GET", "http://node/v1/events?since=0") as stream,
        ):
            for line in stream.iter_lines():
                if line.startswith("data:"):
                    self.attached.set()
                    if self._names(json.loads(line[5:])["launch"]):
                        self.at = time.monotonic()
                        self.seen.set()
                        return

    def _names(self, launch: dict[str, Any]) -> bool:
        verdict = launch.get("verdict") or {}
        return launch["id"] == self._launch and verdict.get("root_ranks") == [RANK]


class Screen(threading.Thread):
    """The panel in a terminal; what it paints is kept with the time at which it came."""

    def __init__(self, home: Path) -> None:
        super().__init__(daemon=True)
        self._pid, self._fd = pty.fork()
        if self._pid == 0:
            ioctl(0, termios.TIOCSWINSZ, struct.pack("HHHH", 24, 80, 0, 0))
            env = {**os.environ, "MOEPANEL_HOME": str(home), "TERM": "xterm-256color"}
            os.execvpe(MOEPANEL[0], MOEPANEL, env)
        self._painted: list[tuple[float, bytes]] = []
        self._more = threading.Condition()
        self.start()

    def run(self) -> None:
        """Read until the panel ends."""
        while True:
            try:
                data = os.read(self._fd, 65536)
            except OSError:
                return
            with self._more:
                self._painted.append((time.monotonic(), data))
                self._more.notify()

    def wait_for(self, text: str, since: float) -> float:
        """Return when `text` was first painted after `since`, both CLOCK_MONOTONIC."""
        deadline = time.monotonic() + WITHIN_S
        while time.monotonic() < deadline:
            with self._more:
                shown = b""
                for at, data in self._painted:
                    shown += data if at >= since else b""
                    if text.encode() in shown:
                        return at
                self._more.wait(1.0)
        sys.exit(f"the panel never painted {text!r}")

    def close(self) -> None:
        """End the panel."""
        os.kill(self._pid, signal.SIGKILL)
        os.waitpid(self._pid, 0)
        self.join()
        os.close(self._fd)


def noted_death(folder: Path, pid: int) -> float:
    """Return when the keeper noted the death of a process, in seconds of CLOCK_MONOTONIC."""
    spec = json.loads((folder / "launch.json").read_text())
    events = map(json.loads, (folder / "events.jsonl").read_text().splitlines())
    exit_t = next(e["t"] for e in events if e["kind"] == "exit" and e["pid"] == pid)
    return float(spec["t0_mono_ns"] / 1e9 + exit_t)


def one_round(home: Path, screen: Screen, number: signal.Signals) -> tuple[float, float, float]:
    """Return the seconds from the signal to the keeper's note, the client, the screen."""
    asked = time.monotonic()
    moepanel(home, "relaunch", "--wait")
    status = json.loads(moepanel(home, "status", "--json"))
    launch, watch = status["launch"], Watch(status["supervisor"]["socket"], status["launch"]["id"])
    watch.start()
    watch.attached.wait(WITHIN_S)
    screen.wait_for(f"#{launch['id']} ", asked)
    victim = next(p["pid"] for p in launch["processes"] if p.get("rank") == RANK)
    began = time.monotonic()
    os.kill(victim, number)
    painted = screen.wait_for(f"rank {RANK} failed first", began)
    if not watch.seen.wait(WITHIN_S):
        sys.exit("the events stream never named the rank")
    noted = noted_death(home / "launches" / f"{launch['id']:06d}", victim)
    return noted - began, watch.at - began, painted - began


def main() -> None:
    """Measure and print a table."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rounds", type=int, default=10)
    parser.add_argument("--signal", default="SEGV", choices=("SEGV", "KILL", "ABRT"))
    asked = parser.parse_args()
    number = signal.Signals[f"SIG{asked.signal}"]
    with tempfile.TemporaryDirectory() as folder:
        home = Path(folder)
        with socket.socket() as probe:
            probe.bind(("127.0.0.1", 0))
            port = probe.getsockname()[1]
        moepanel(home, "up", "--wait", "--set", f"port={port}")
        screen = Screen(home)
        try:
            rounds = [one_round(home, screen, number) for _ in range(asked.rounds)]
        finally:
            screen.close()
            moepanel(home, "shutdown", "--now")
    print(
        f"{platform.processor() or platform.machine()}, {os.cpu_count()} cores, load "
        f"{os.getloadavg()[0]:.1f}, {asked.rounds} rounds, SIG{asked.signal} to rank {RANK}"
    )
    print(f"{'ms after the signal':28} {'median':>8} {'worst':>8}   target")
    for name, target, values in zip(ROWS, TARGETS, zip(*rounds, strict=True), strict=True):
        median, worst = 1000 * statistics.median(values), 1000 * max(values)
        print(f"{name:28} {median:8.0f} {worst:8.0f}   {target}".rstrip())


if __name__ == "__main__":
    main()
