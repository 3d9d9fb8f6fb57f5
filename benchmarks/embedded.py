"""The embedded default on this machine: starts, decode speed, idle cost.

    python benchmarks/embedded.py [--rounds 3]

Runs the real commands in a home of its own. `cold` includes starting the supervisor and importing
torch; `relaunch` is what the operator waits for when a flag was toggled. Medians of the rounds.
"""

from __future__ import annotations

import argparse
import json
import os
import platform
import socket
import statistics
import subprocess
import sys
import tempfile
import threading
import time
from pathlib import Path

import httpx
import psutil

PROMPT = "The first thing that an operator should know about the machine is"
TOKENS = 200


def moepanel(home: Path, *words: str) -> tuple[float, str]:
    """Run a command; return its wall time in seconds and what it printed."""
    began = time.perf_counter()
    done = subprocess.run(
        [sys.executable, "-m", "panel.cli", *words],
        env={**os.environ, "MOEPANEL_HOME": str(home)},
        capture_output=True,
        text=True,
        check=False,
    )
    if done.returncode:
        sys.exit(f"moepanel {' '.join(words)}: {done.stderr}{done.stdout}")
    return time.perf_counter() - began, done.stdout


def decode_rate(url: str, streams: int, temperature: float) -> float:
    """Return tokens a second of all streams together, first token to last."""
    spans: list[tuple[float, float, int]] = []

    def one(index: int) -> None:
        body = {
            "model": "moe-tiny", "prompt": f"{PROMPT} number {index}", "max_tokens": TOKENS,
            "temperature": temperature, "seed": index, "stream": True, "ignore_eos": True,
            "stream_options": {"include_usage": True},
        }  # fmt: skip
        first = last = 0.0
        count = 0
        with httpx.stream("POST", f"{url}/v1/completions", json=body, timeout=300) as answer:
            for line in answer.iter_lines():
                if line.startswith("data: {"):
                    piece = json.loads(line[6:])
                    last = time.perf_counter()
                    first = first or last
                    if piece.get("usage"):
                        count = piece["usage"]["completion_tokens"]
        spans.append((first, last, count))

    threads = [threading.Thread(target=one, args=(index,)) for index in range(streams)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    began, ended = min(span[0] for span in spans), max(span[1] for span in spans)
    return sum(span[2] - 1 for span in spans) / (ended - began)


def proportional(pids: list[int]) -> float:
    """Return the proportional set size of processes, MB."""
    return sum(psutil.Process(pid).memory_full_info().pss for pid in pids) / 1e6


def cpu_percent(pid: int, seconds: float = 5.0) -> float:
    """Return a process's share of one core over some seconds, in per cent."""
    return psutil.Process(pid).cpu_percent(interval=seconds)


def main() -> None:
    """Measure and print a table."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rounds", type=int, default=3)
    rounds = parser.parse_args().rounds
    rows: list[tuple[str, str, str]] = []
    cold: list[float] = []
    relaunch: list[float] = []
    with tempfile.TemporaryDirectory() as folder:
        home = Path(folder)
        with socket.socket() as probe:
            probe.bind(("127.0.0.1", 0))
            port = probe.getsockname()[1]
        try:
            for _ in range(rounds):
                cold.append(moepanel(home, "up", "--wait", "--set", f"port={port}")[0])
                moepanel(home, "shutdown")
            moepanel(home, "up", "--wait", "--set", f"port={port}")
            url = f"http://127.0.0.1:{port}"
            for index in range(rounds):
                wait_warm(home)
                size = 8 if index % 2 == 0 else 1
                relaunch.append(moepanel(home, "relaunch", "--wait", "--set", f"ep-size={size}")[0])
            rows += [
                ("cold up --wait", f"{statistics.median(cold):.1f} s", "≤ 12 s"),
                ("relaunch --wait", f"{statistics.median(relaunch):.1f} s", "≤ 4 s"),
            ]
            decode_rate(url, 1, 0)
            for streams, target in ((1, "≥ 50 tok/s"), (8, "")):
                rates = [decode_rate(url, streams, 0.8) for _ in range(rounds)]
                rows.append(
                    (
                        f"decode, {streams} stream(s)",
                        f"{statistics.median(rates):.0f} tok/s",
                        target,
                    )
                )
            moepanel(home, "relaunch", "--wait", "--set", "speculative-algorithm=ngram")
            rates = [decode_rate(url, 1, 0) for _ in range(rounds)]
            rows.append(
                ("decode, 1 stream, greedy, n-gram", f"{statistics.median(rates):.0f} tok/s", "")
            )
            wait_warm(home)
            status = json.loads(moepanel(home, "status", "--json")[1])
            times = [moepanel(home, "status")[0] for _ in range(5)]
            ranks = [p["pid"] for p in status["launch"]["processes"] if p.get("rank") is not None]
            daemon = status["supervisor"]["pid"]
            launch_folder = home / "launches" / f"{status['launch']['id']:06d}"
            keeper = json.loads((launch_folder / "keeper.json").read_text())["pid"]
            rows += [
                ("moepanel status", f"{statistics.median(times) * 1000:.0f} ms", "< 300 ms"),
                ("eight ranks, PSS", f"{proportional(ranks):.0f} MB", "≤ 1500 MB"),
                ("keeper, RSS", f"{psutil.Process(keeper).memory_info().rss / 1e6:.0f} MB", "≤ 15"),
                (
                    "supervisor, RSS",
                    f"{psutil.Process(daemon).memory_info().rss / 1e6:.0f} MB",
                    "≤ 80",
                ),
                ("supervisor, idle CPU", f"{cpu_percent(daemon):.1f} %", "≤ 1 %"),
            ]
        finally:
            moepanel(home, "shutdown", "--now")
    print(f"{platform.processor() or platform.machine()}, {os.cpu_count()} cores, "
          f"Python {platform.python_version()}, load {os.getloadavg()[0]:.1f}")  # fmt: skip
    for name, value, target in rows:
        print(f"{name:34} {value:>12}   {target}")
    sums = Path(__file__).with_name("collectives.py")
    subprocess.run([sys.executable, sums, "--device=cpu"], check=True)


def wait_warm(home: Path, seconds: float = 60.0) -> None:
    """Wait until the supervisor holds a warm spawner for the next launch."""
    deadline = time.monotonic() + seconds
    while time.monotonic() < deadline:
        if json.loads(moepanel(home, "status", "--json")[1])["supervisor"].get("warm"):
            return
        time.sleep(0.2)
    sys.exit("the supervisor never had a warm spawner")


if __name__ == "__main__":
    main()
