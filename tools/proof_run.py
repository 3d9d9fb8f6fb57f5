"""The whole of moepanel on all GPUs of a host, in one go of under ten minutes.

    python tools/proof_run.py OUT [--ranks N] [--model FOLDER] [--limit 570]

Through the panel's own commands, in a home of its own: doctor; the builtin engine in every parallel
mode, with and without speculation (simulated acceptance, and said so), with short and long graph
lists; milliseconds a step, seconds to ready, the table of collectives; then drills: a rank killed
in capture and in serving, a hang, a rank out of memory. OUT gets the evidence folders, a recorded
NVML session, screenshots and table.md; standard output the same table. On a host without GPUs it
runs eight CPU ranks with moe-tiny, with smaller batches. What there is no time for is left out and
named. Ends with 1 where something failed. Without --model a random checkpoint of DeepSeek-V2-Lite's
shape is written into memory (31 GB) where there are GPUs.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import os
import random
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

import httpx

from benchmarks.gpu_decode import step_ms
from benchmarks.serving import NO_MULTICAST
from panel.client import Client
from panel.config.home import find_home
from panel.screens.panel import Panel

ROOT = Path(__file__).resolve().parents[1]
LEAVING_S = 20.0
SPECULATING = ("speculative-algorithm=ngram", "speculative-simulate-acceptance=0.7")


@dataclass(frozen=True)
class Scale:
    """What fits the kind of device."""

    batches: tuple[int, ...]
    answer: int
    repeats: int
    vocabulary: int
    graphs: tuple[int, ...]
    """The largest batch sizes of the two graph lists."""


GPU = Scale((1, 8, 32, 128), 257, 3, 100_000, (128, 512))
CPU = Scale((1, 8), 33, 1, 4000, (8, 16))


@dataclass
class Proof:
    """One run: its home, its clock, its table."""

    out: Path
    ranks: int
    gpus: int
    model: str
    until: float
    home: Path
    port: int
    rows: list[str] = field(default_factory=list)
    failed: list[str] = field(default_factory=list)

    @property
    def scale(self) -> Scale:
        """How much is measured."""
        return GPU if self.gpus else CPU

    @property
    def left(self) -> float:
        """Seconds for further steps."""
        return self.until - time.monotonic()

    @property
    def url(self) -> str:
        """Where the engine answers."""
        return f"http://127.0.0.1:{self.port}"

    def tell(self, row: str, *, good: bool = True) -> None:
        """Add a row to the table."""
        self.rows.append(row)
        if not good:
            self.failed.append(row)
        print(row if good else f"{row} FAILED", flush=True)

    def run(self, *words: str) -> subprocess.CompletedProcess[str]:
        """Run `moepanel WORDS`, as long as there is time."""
        return subprocess.run(
            [sys.executable, "-m", "panel.cli", *words],
            cwd=ROOT,
            capture_output=True,
            text=True,
            timeout=max(self.left, 1),
            check=False,
        )

    def launch(self, *settings: str) -> float | None:
        """Launch the engine anew; return the seconds to ready, None where it failed."""
        words = [word for setting in settings for word in ("--set", setting)]
        verb = ["relaunch", "--reset"] if self.status().get("launch") else ["up"]
        done = self.run(*verb, *words, "--wait", "--json")
        if done.returncode != 0:
            return None
        ready: float = json.loads(done.stdout)["ready_s"]
        return ready

    def status(self) -> dict[str, Any]:
        """Return the supervisor's snapshot."""
        found: dict[str, Any] = json.loads(self.run("status", "--json").stdout or "{}")
        return found

    def verdict(self, true: Callable[[dict[str, Any]], bool], seconds: float) -> dict[str, Any]:
        """Return the launch's verdict once it is as wanted; empty where it does not come."""
        end = time.monotonic() + min(seconds, max(self.left, 0))
        while time.monotonic() < end:
            launch = self.status().get("launch") or {}
            found: dict[str, Any] = launch.get("verdict") or {}
            if found and true(found):
                return found
            time.sleep(0.3)
        return {}


# Modes


def measure(proof: Proof, name: str, *settings: str) -> None:
    """Launch in one mode and time its steps."""
    ready = proof.launch(*settings)
    if ready is None:
        verdict = (proof.status().get("launch") or {}).get("verdict") or {}
        proof.tell(f"| {name} | {verdict.get('headline', 'not started')} |", good=False)
        return
    cells = [name, f"{ready:.1f}"]
    numbers, scale = random.Random(0), proof.scale
    for batch in scale.batches:
        if proof.left < 45:
            cells.append("no time")
            continue
        ms = step_ms(
            proof.url,
            batch,
            numbers,
            answer=scale.answer,
            repeats=scale.repeats,
            vocabulary=scale.vocabulary,
        )
        cells.append(f"{ms:.2f}")
    proof.tell(f"| {' | '.join(cells)} |")
    started = httpx.get(f"{proof.url}/server_info", timeout=10).json()["started"]
    (proof.out / f"collectives {name}.json").write_text(json.dumps(started["collectives"]))


def modes(proof: Proof) -> list[tuple[str, list[str]]]:
    """Return the parallel modes that so many ranks have."""
    short, long = (f"cuda-graph-max-bs={size}" for size in proof.scale.graphs)
    tp, ep = f"TP{proof.ranks}", f"ep-size={proof.ranks}"
    a2a = ["moe-a2a-backend=auto", "dp-attention=true"]
    every = [(tp, [short])]
    if proof.ranks > 1:
        every += [
            (f"{tp} EP{proof.ranks}", [short, ep]),
            (f"{tp} EP{proof.ranks} all-to-all, dp-attention", [short, ep, *a2a]),
        ]
    return [
        *every,
        (f"{tp}, speculation, SIMULATED acceptance 0.7", [short, *SPECULATING]),
        (f"{tp}, graphs to {proof.scale.graphs[1]}", [long]),
    ]


# Drills


def drill(proof: Proof, rank: int, phase: str, kind: str) -> None:
    """Let a rank fail; the verdict has to name it."""
    rank = min(rank, proof.ranks - 1)
    proof.launch(f"fault=rank={rank},phase={phase},kind={kind},after=0")
    began = time.monotonic()

    def right(verdict: dict[str, Any]) -> bool:
        return bool(verdict["root_ranks"] == [rank] or proof.ranks == 1)

    found = proof.verdict(right, 45)
    words = found.get("headline", "no verdict names it")
    took = time.monotonic() - began
    proof.tell(f"| {kind} of rank {rank} in {phase} | {took:.1f} | {words} |", good=bool(found))


async def screenshots(proof: Proof) -> None:
    """Save the node screen as it is now."""
    for width, height in ((80, 24), (120, 40)):
        panel = Panel(Client(find_home().socket))
        async with panel.run_test(size=(width, height)) as pilot:
            end = time.monotonic() + 10
            while panel.desk.view.launch is None and time.monotonic() < end:
                await pilot.pause(0.1)
            await pilot.pause(1.5)
            panel.save_screenshot(f"node-{width}x{height}.svg", path=str(proof.out))


# The run


def prepare(args: argparse.Namespace) -> Proof:
    """Make a home with a profile; write the checkpoint where there are GPUs."""
    out = args.out.absolute()
    out.mkdir(parents=True, exist_ok=True)
    gpus = len([path for path in Path("/dev").glob("nvidia*") if path.name[6:].isdigit()])
    ranks = args.ranks or gpus or 8
    home = Path(tempfile.mkdtemp(prefix="moepanel-proof-"))
    os.environ |= {**NO_MULTICAST, "MOEPANEL_HOME": str(home)}
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    model = args.model
    until = time.monotonic() + args.limit - LEAVING_S
    if model is None and gpus:
        model = "/dev/shm/moepanel-proof"
        script = str(ROOT / "tools/random_checkpoint.py")
        subprocess.run([sys.executable, script, model], check=True)
    proof = Proof(out, ranks, gpus, model or "moe-tiny", until, home, port)
    largest = proof.scale.graphs[1]
    lines = [
        'engine = "builtin"',
        "[flags]",
        f'model-path = "{proof.model}"',
        f"tp-size = {ranks}",
        f'device = "{"cuda" if gpus else "cpu"}"',
        f"port = {port}",
        f"max-running-requests = {largest}",
        "disable-prefix-cache = true",
    ]
    if gpus:
        lines.append("context-length = 4096")
    (home / "profiles").mkdir()
    (home / "profiles" / "tiny.toml").write_text("\n".join(lines) + "\n")
    return proof


def steps(proof: Proof) -> None:
    """Do everything that there is time for."""
    (proof.out / "doctor.txt").write_text(proof.run("doctor").stdout)
    grades = [line["grade"] for line in json.loads(proof.run("doctor", "--json").stdout)]
    told = ", ".join(f"{grades.count(grade)} {grade}" for grade in ("pass", "warn", "fail", "info"))
    proof.tell(f"{proof.ranks} ranks on {proof.gpus or 'no'} GPUs; doctor: {told}")
    batches = " | ".join(f"ms at batch {batch}" for batch in proof.scale.batches)
    proof.tell(f"\n| mode | ready s | {batches} |\n{'|---' * (2 + len(proof.scale.batches))}|")
    every = modes(proof)
    for number, (name, settings) in enumerate(every):
        if proof.left < 150:
            proof.tell(f"| {name} | no time |")
            continue
        measure(proof, name, *settings)
        if number == 0:
            asyncio.run(screenshots(proof))
    proof.tell("\n| drill | s to the right verdict | verdict |\n|---|---|---|")
    for rank, phase, kind in (
        (3, "capture", "kill"),
        (3, "serving", "kill"),
        (5, "serving", "hang"),
        (7, "serving", "oom"),
    ):
        if proof.left < 40:
            proof.tell(f"| {kind} in {phase} | no time | |")
            continue
        drill(proof, rank, phase, kind)


def leave(proof: Proof) -> None:
    """End all processes, keep the evidence and the table."""
    with suppress(subprocess.TimeoutExpired):
        subprocess.run(
            [sys.executable, "-m", "panel.cli", "shutdown", "--now"],
            cwd=ROOT,
            capture_output=True,
            timeout=LEAVING_S - 2,
            check=False,
        )
    (proof.out / "table.md").write_text("\n".join(proof.rows) + "\n")
    launches = proof.home / "launches"
    if launches.is_dir():
        shutil.copytree(launches, proof.out / "launches", dirs_exist_ok=True, ignore=_pipes)
    shutil.rmtree(proof.home, ignore_errors=True)
    if proof.model.startswith("/dev/shm/moepanel-proof"):
        shutil.rmtree(proof.model, ignore_errors=True)


def _pipes(folder: str, names: list[str]) -> set[str]:
    return {name for name in names if Path(folder, name).is_fifo()}


def main() -> int:
    """Run; return the exit code."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("out", type=Path)
    parser.add_argument("--ranks", type=int)
    parser.add_argument("--model")
    parser.add_argument("--limit", type=float, default=570)
    proof = prepare(parser.parse_args())
    recorder = None
    if proof.gpus:
        script = str(ROOT / "tools/record_nvml.py")
        load = [sys.executable, "-c", f"import time; time.sleep({max(proof.left - 30, 1):.0f})"]
        recorder = subprocess.Popen([sys.executable, script, str(proof.out / "nvml.json"), *load])
    try:
        steps(proof)
    except subprocess.TimeoutExpired:
        proof.tell("the time is up", good=False)
    finally:
        leave(proof)
        if recorder is not None:
            for _ in range(2):
                with suppress(subprocess.TimeoutExpired):
                    recorder.wait(10)
                recorder.send_signal(signal.SIGINT)
    return bool(proof.failed)


if __name__ == "__main__":
    sys.exit(main())
