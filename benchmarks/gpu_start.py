"""Launch to ready, by phase: cold, with compiled kernels, with other flags, with kept weights.

    python benchmarks/gpu_start.py [CHECKPOINT] [--tp-size 1] [--set FLAG=VALUE ...] [--json FILE]

Runs the real commands in a home and with a Triton cache of its own. CHECKPOINT is a folder, by
default moe-tiny, so that it runs on CPU ranks too. `wall` is what the operator waits for, the end
of the old launch included; `ready` counts from the order of the new one. Phases are those of the
slowest rank. The checkpoint is read once beforehand: all starts find it in the page cache.
"""

from __future__ import annotations

import argparse
import json
import os
import platform
import socket
import subprocess
import sys
import tempfile
import time
import urllib.request
from collections.abc import Iterable
from pathlib import Path
from typing import Any, NamedTuple

PEERS = (
    "launch to ready with a checkpoint of 30 GB in the page cache on one H200: vLLM 0.24 72 to"
    " 125 s, SGLang 0.5.15 29 to 34 s with four graph sizes"
)
DEADLINE_S = 600.0
_LEAST_S = 0.005


class Start(NamedTuple):
    """One start: what was waited for, and where the seconds went."""

    name: str
    wall: float
    ready: float
    phases: dict[str, float]
    read: int
    """Bytes of the checkpoint that all ranks read."""
    answer: list[list[Any]]
    """Tokens of a greedy answer and their log probabilities: weights that are kept are the same."""


class Node:
    """A home and the commands run in it."""

    def __init__(self, home: Path, triton: Path) -> None:
        self.home = home
        self._env = os.environ | {"MOEPANEL_HOME": str(home), "TRITON_CACHE_DIR": str(triton)}

    def run(self, *words: str, check: bool = True) -> float:
        """Run a command; return its wall time in seconds."""
        began = time.perf_counter()
        done = subprocess.run(
            [sys.executable, "-m", "panel.cli", *words],
            env=self._env,
            capture_output=True,
            text=True,
            check=False,
        )
        if check and done.returncode:
            sys.exit(f"moepanel {' '.join(words)}: {done.stderr}{done.stdout}")
        return time.perf_counter() - began

    def status(self) -> Any:
        """Return the snapshot."""
        done = subprocess.run(
            [sys.executable, "-m", "panel.cli", "status", "--json"],
            env=self._env,
            capture_output=True,
            check=True,
        )
        return json.loads(done.stdout)

    def wait(self, what: str, true: Any) -> None:
        """Wait until something is true of the snapshot."""
        until = time.monotonic() + DEADLINE_S
        while not true(self.status()):
            if time.monotonic() > until:
                sys.exit(f"waited in vain for {what}")
            time.sleep(0.2)

    def wait_warm(self) -> None:
        """Wait until the next launch's spawner has done its imports."""
        self.wait("a warm spawner", lambda status: status["supervisor"].get("warm"))

    def start(self, name: str, *words: str) -> Start:
        """Run a command that launches; return what it took."""
        wall = self.run(*words, "--wait")
        launch = self.status()["launch"]
        read = 0
        events = self.home / "launches" / f"{launch['id']:06d}" / "events.jsonl"
        for line in events.read_text().splitlines():
            event = json.loads(line)
            if event["kind"] == "memory":
                read += event["weights_read"]
        answer = greedy(launch["url"])
        start = Start(name, wall, launch["ready_s"], launch["start"], read, answer)
        print(f"{name}: {wall:.1f} s, ready after {start.ready:.1f} s", file=sys.stderr)
        return start


def greedy(url: str) -> list[list[Any]]:
    """Return tokens and log probabilities of an answer to a fixed prompt."""
    body = {"prompt": list(range(5, 37)), "max_tokens": 16, "temperature": 0, "logprobs": 1}
    request = urllib.request.Request(
        f"{url}/v1/completions",
        json.dumps(body | {"ignore_eos": True}).encode(),
        {"Content-Type": "application/json"},
    )
    with urllib.request.urlopen(request, timeout=DEADLINE_S) as reply:
        scored = json.load(reply)["choices"][0]["logprobs"]
    return [scored["tokens"], scored["token_logprobs"]]


def measure(node: Node) -> list[Start]:
    """Launch in all the ways that an operator does."""
    starts = [node.start("cold", "up")]
    node.run("shutdown")
    starts.append(node.start("kernels compiled", "up"))
    node.wait_warm()
    starts.append(node.start("other flags", "relaunch", "--set", "mem-fraction-static=0.8"))
    node.wait_warm()
    starts.append(node.start("to be kept", "relaunch", "--set", "keep-weights=true"))
    node.wait_warm()
    starts.append(node.start("kept", "relaunch", "--set", "mem-fraction-static=0.75"))
    drill = "fault=rank=0,phase=serving,kind=kill,after=0"
    node.run("relaunch", "--wait", "--set", drill, check=False)
    node.wait("the crash", lambda status: status["launch"]["state"] == "crashed")
    node.wait_warm()
    starts.append(node.start("kept, after a crash", "relaunch", "--unset", "fault"))
    return starts


def table(starts: list[Start]) -> Iterable[str]:
    """Yield a line a figure, a column a start."""
    names = dict.fromkeys(name for start in starts for name in start.phases)
    width = max(len(start.name) for start in starts) + 2
    yield f"{'seconds':<16}" + "".join(f"{start.name:>{width}}" for start in starts)
    for name in names:
        if all(start.phases.get(name, 0.0) < _LEAST_S for start in starts):
            continue
        cells = (f"{start.phases.get(name, 0.0):>{width}.2f}" for start in starts)
        yield f"{name:<16}" + "".join(cells)
    yield f"{'ready':<16}" + "".join(f"{start.ready:>{width}.2f}" for start in starts)
    yield f"{'wall':<16}" + "".join(f"{start.wall:>{width}.2f}" for start in starts)
    words = ("yes" if start.answer == starts[0].answer else "NO" for start in starts)
    yield f"{'same answer':<16}" + "".join(f"{word:>{width}}" for word in words)
    yield f"{'GB read':<16}" + "".join(f"{start.read / 1e9:>{width}.2f}" for start in starts)


def profile(arguments: argparse.Namespace) -> str:
    """Return the profile that is launched."""
    with socket.create_server(("127.0.0.1", 0)) as free:
        port = free.getsockname()[1]
    flags = {"model-path": arguments.checkpoint, "tp-size": str(arguments.tp_size)}
    flags |= {"port": str(port)} | dict(text.split("=", 1) for text in arguments.set)
    lines = (f"{name} = {json.dumps(value)}" for name, value in flags.items())
    return 'engine = "builtin"\n\n[flags]\n' + "\n".join(lines) + "\n"


def main() -> None:
    """Measure and print a table."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("checkpoint", nargs="?", default="moe-tiny")
    parser.add_argument("--tp-size", type=int, default=1)
    parser.add_argument("--set", nargs="*", default=[], metavar="FLAG=VALUE")
    parser.add_argument("--json", type=Path, help="write the figures there as well")
    arguments = parser.parse_args()
    for file in Path(arguments.checkpoint).glob("*.safetensors"):
        with file.open("rb") as data:
            while data.read(1 << 26):
                pass
    with tempfile.TemporaryDirectory() as folder:
        home = Path(folder) / "home"
        (home / "profiles").mkdir(parents=True)
        (home / "profiles/tiny.toml").write_text(profile(arguments))
        node = Node(home, Path(folder) / "triton")
        try:
            starts = measure(node)
        finally:
            node.run("shutdown", "--now", check=False)
    print(
        f"{platform.processor() or platform.machine()}, {os.cpu_count()} cores,"
        f" Python {platform.python_version()}, load {os.getloadavg()[0]:.1f},"
        f" {arguments.checkpoint} on {arguments.tp_size} ranks"
    )
    print("\n".join(table(starts)))
    print(PEERS)
    if arguments.json is not None:
        arguments.json.write_text(json.dumps([start._asdict() for start in starts], indent=1))


if __name__ == "__main__":
    main()
