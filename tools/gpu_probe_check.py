"""Everything that the panel sees of a node's GPUs, through the real supervisor, in one go.

    python tools/gpu_probe_check.py FOLDER [--drills] [--model moe-tiny] [--ranks N] [--limit 150]

Launches the builtin engine on all GPUs (on eight CPU ranks where there are none), then: doctor,
GPU figures at rest and under load, stacks, every step of the ladder against hangs, a rank that
hangs, a rank that crashes. With `--drills` instead of all that: memory that runs out, illegal
accesses and NaN in every phase, and what each is called. FOLDER gets a file a step and the evidence
of all launches; standard output a line a step: what was found, and whether it is what should be.
Ends with 1 where a step fails. After `--limit` seconds it stops, whatever it is doing, and leaves
no process behind.
"""

from __future__ import annotations

import argparse
import json
import os
import re
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Any

import httpx
from gpu_drills import drills, sound

ROOT = Path(__file__).parents[1]
MOEPANEL = [sys.executable, "-m", "panel.cli"]
SAFE = {
    # Multicast objects of a process that dies badly can put a host's GPUs out of service.
    "NCCL_NVLS_ENABLE": "0",
    "TORCH_SYMM_MEM_DISABLE_MULTICAST": "1",
    "NVSHMEM_DISABLE_NVLS": "1",
}
LEAVING_S = 15.0
"""Kept of the limit for the end of everything."""
STEPS = ("look", "ras", "stacks", "flight", "core")


class LateError(Exception):
    """The time is up."""


class Check:
    """One run: a home of its own, a folder for what is found, and a clock."""

    def __init__(self, folder: Path, model: str, limit: float, ranks: int | None) -> None:
        self.folder = folder
        self.gpus = len([path for path in Path("/dev").glob("nvidia*") if path.name[6:].isdigit()])
        self.ranks = ranks or self.gpus or 8
        self.failed = 0
        self._until = time.monotonic() + limit - LEAVING_S
        self._number = 0
        self.home = Path(tempfile.mkdtemp(prefix="moepanel-check-"))
        self._env = {**os.environ, **SAFE, "MOEPANEL_HOME": str(self.home)}
        folder.mkdir(parents=True, exist_ok=True)
        with socket.socket() as probe:
            probe.bind(("127.0.0.1", 0))
            self._port = probe.getsockname()[1]
        device = "cuda" if self.gpus else "cpu"
        (self.home / "profiles").mkdir()
        (self.home / "profiles" / "tiny.toml").write_text(
            f'engine = "builtin"\n\n[flags]\nmodel-path = "{model}"\ntp-size = {self.ranks}\n'
            f'device = "{device}"\nport = {self._port}\n'
        )
        self._http: httpx.Client | None = None

    @property
    def left(self) -> float:
        """Seconds that are left for looking."""
        return self._until - time.monotonic()

    # What is told

    def tell(self, name: str, found: str, *, good: bool = True) -> None:
        """Print a line."""
        self.failed += not good
        print(f"{'ok' if good else 'BAD':<4} {name:<16} {found}", flush=True)

    def keep(self, name: str, text: str) -> None:
        """Write a file of what was found."""
        self._number += 1
        (self.folder / f"{self._number:02}-{name}").write_text(text)

    # What is asked

    def run(self, *words: str) -> subprocess.CompletedProcess[str]:
        """Run `moepanel WORDS`, as long as there is time; keep what it printed."""
        if self.left <= 0:
            raise LateError
        try:
            done = subprocess.run(
                [*MOEPANEL, *words], env=self._env, cwd=ROOT, capture_output=True, text=True,
                timeout=self.left, check=False,
            )  # fmt: skip
        except subprocess.TimeoutExpired:
            raise LateError from None
        name = re.sub(r"[^a-z]+", "-", " ".join(words).lower()).strip("-")[:40]
        told = f"{done.stdout}\n--- {done.returncode} ---\n{done.stderr}"
        self.keep(f"{name}.{'json' if '--json' in words else 'txt'}", told)
        return done

    def snapshot(self) -> Any:
        """Return the supervisor's snapshot."""
        return self._client().get("/v1/snapshot").json()

    def wait(self, what: str, true: Callable[[Any], bool], seconds: float) -> Any:
        """Return the first snapshot of which something is true, None where none came."""
        deadline = min(time.monotonic() + seconds, self._until)
        while time.monotonic() < deadline:
            snapshot = self.snapshot()
            if true(snapshot):
                return snapshot
            time.sleep(0.2)
        self.tell(what, f"not within {seconds:.0f} s", good=False)
        return None

    def ladder(self, launch: int, step: str) -> str:
        """Do a step of the ladder; return what it found or why it cannot be done."""
        path = f"/v1/launches/{launch}/hang"
        self._client().post(f"{path}/{step}")
        rungs = self._client().get(path).json()["rungs"]
        rung = next(each for each in rungs if each["step"] == step)
        return rung.get("result") or f"not here: {rung.get('refused')}"

    def complete(self) -> tuple[int, str]:
        """Ask for a few tokens; return the answer's status, 0 where there is none, and its text."""
        body = {"prompt": "The", "max_tokens": 4}
        url = f"http://127.0.0.1:{self._port}/v1/completions"
        try:
            answer = httpx.post(url, json=body, timeout=max(min(20.0, self.left), 1.0))
        except httpx.HTTPError as error:
            return 0, repr(error)
        return answer.status_code, answer.text

    def load(self, seconds: float) -> list[Any]:
        """Have tokens made; return the GPUs of the snapshots meanwhile."""
        body = {"prompt": "The", "max_tokens": 200, "temperature": 1, "ignore_eos": True}
        url = f"http://127.0.0.1:{self._port}/v1/completions"
        until = time.monotonic() + min(seconds, max(self.left, 0))

        def ask() -> None:
            while time.monotonic() < until:
                with suppress(httpx.HTTPError):
                    httpx.post(url, json=body, timeout=20)

        threads = [threading.Thread(target=ask, daemon=True) for _ in range(8)]
        for thread in threads:
            thread.start()
        seen = []
        while time.monotonic() < until:
            time.sleep(1.0)
            seen.append(self.snapshot())
        return seen

    def _client(self) -> httpx.Client:
        if self._http is None:
            path = json.loads(self.run("status", "--json").stdout)["supervisor"]["socket"]
            transport = httpx.HTTPTransport(uds=path)
            self._http = httpx.Client(transport=transport, base_url="http://node", timeout=60)
        return self._http

    def close(self) -> None:
        """End all processes, keep the evidence."""
        with suppress(subprocess.TimeoutExpired):
            subprocess.run(
                [*MOEPANEL, "shutdown", "--now"], env=self._env, cwd=ROOT, capture_output=True,
                timeout=LEAVING_S - 5, check=False,
            )  # fmt: skip
        left = processes_of(self.home)
        for pid in left:
            with suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
        self.tell("shutdown", f"{len(left)} processes left", good=not left)
        if self._http is not None:
            self._http.close()
        for name in ("launches", "supervisor.log"):
            source = self.home / name
            if source.is_dir():
                shutil.copytree(source, self.folder / name, ignore=_pipes, dirs_exist_ok=True)
            elif source.exists():
                shutil.copy(source, self.folder / name)
        shutil.rmtree(self.home, ignore_errors=True)


def _pipes(folder: str, names: list[str]) -> set[str]:
    return {name for name in names if Path(folder, name).is_fifo()}


def processes_of(home: Path) -> list[int]:
    """Return what lives with this home in its environment, this process apart."""
    mark = f"MOEPANEL_HOME={home}".encode()
    found = []
    for folder in Path("/proc").iterdir():
        if folder.name.isdigit() and int(folder.name) != os.getpid():
            with suppress(OSError):
                if mark in (folder / "environ").read_bytes().split(b"\0"):
                    found.append(int(folder.name))
    return found


# The steps


def doctor(check: Check) -> None:
    """What the node can and cannot do."""
    done = check.run("doctor")
    lines = json.loads(check.run("doctor", "--json").stdout)
    grades = [line["grade"] for line in lines]
    told = ", ".join(f"{grades.count(g)} {g}" for g in ("pass", "warn", "fail", "info"))
    check.tell("doctor", told, good=done.returncode in (0, 1) and bool(lines))


def launch(check: Check) -> None:
    """A launch that gets to serving."""
    done = check.run("up", "--wait", "--json")
    found = json.loads(done.stdout or "{}")
    told = f"{check.ranks} ranks on {'GPUs' if check.gpus else 'the CPU'}, {found.get('ready_s')} s"
    check.tell("up", told if done.returncode == 0 else done.stderr, good=done.returncode == 0)
    check.run("status")


def gpus(check: Check) -> None:
    """GPU figures at rest and under load, and how long a tick took."""
    if not check.gpus:
        note = check.snapshot()["host"]["gpu_note"]
        check.tell("gpus", f"none, and it says so: {note}", good=bool(note))
        return
    ready = check.wait("gpus", lambda s: all(g.get("rank") is not None for g in s["gpus"]), 10)
    if ready is None or not ready["gpus"]:
        check.tell("gpus", "no figures", good=False)
        return
    seen = [ready, *check.load(4.0)]
    table = "\n".join(row for snapshot in seen for row in (*map(gpu_row, snapshot["gpus"]), ""))
    check.keep("gpus.txt", table)
    check.keep("gpus.json", json.dumps([snapshot["gpus"] for snapshot in seen], indent=1))
    busiest = max((g["sample"].get("util") or 0) for s in seen for g in s["gpus"])
    alarms = {alarm["text"] for s in seen for g in s["gpus"] for alarm in g.get("alarms", ())}
    told = f"{len(ready['gpus'])} with ranks, at most {busiest} % busy; alarms: {alarms or 'none'}"
    check.tell("gpus", told, good=busiest > 0)


def gpu_row(gpu: Any) -> str:
    """Return a GPU as a line of text."""
    sample = gpu["sample"]
    named = ("index", "util", "memory_used", "power", "temperature", "clock", "pcie_gen",
             "pcie_width", "pcie_rx", "pcie_tx", "nvlinks", "nvlink_rx", "nvlink_tx")  # fmt: skip
    figures = " ".join(f"{name}={sample.get(name)}" for name in named)
    return f"rank={gpu.get('rank')} age={gpu.get('age', 0)} {figures}"


def stacks(check: Check) -> None:
    """Where all ranks stand, or why that cannot be told."""
    check.run("stacks")
    done = check.run("stacks", "--json")
    found = json.loads(done.stdout or "{}")
    processes = found.get("processes", ())
    trouble = sorted({each.get("trouble", "") for each in processes} - {""})
    taken = sum(bool(each.get("threads")) for each in processes)
    told = f"{taken} of {len(processes)} taken; {'; '.join(trouble) or done.stderr.strip()}"
    check.tell("stacks", told, good=taken > 0 or bool(trouble) or "py-spy" in done.stderr)


def ladder(check: Check) -> None:
    """Every step with a gang that is well: it does no harm, or says why it is not to be had."""
    number = check.snapshot()["launch"]["id"]
    for step in STEPS:
        found = check.ladder(number, step)
        check.keep(f"ladder-{step}.txt", found)
        check.tell(f"ladder {step}", found, good=bool(found))
    state = check.snapshot()["launch"]["state"]
    check.tell("after the ladder", state, good=state == "serving")


def hang(check: Check) -> None:
    """A rank that stands still: suspected, looked at, named, while nothing is stopped for it."""
    rank = check.ranks - 1
    fault = f"fault=rank={rank},phase=serving,kind=hang,after=2"
    check.run("relaunch", "--reset", "--set", fault, "--wait")
    suspected = check.wait("hang suspected", lambda s: s["launch"].get("suspicion"), 25)
    if suspected is None:
        return
    check.tell("hang suspected", suspected["launch"]["suspicion"]["text"])
    number = suspected["launch"]["id"]
    for step in STEPS[:-1]:
        check.tell(f"hang {step}", check.ladder(number, step))
    hung = check.wait("hang verdict", lambda s: s["launch"].get("verdict"), 30)
    if hung is not None:
        verdict = hung["launch"]["verdict"]
        check.keep("hang-verdict.json", json.dumps(verdict, indent=1))
        right = verdict["root_ranks"] == [rank] or check.ranks == 1
        check.tell("hang verdict", verdict["headline"], good=right)
    check.run("down", "--now")


def crash(check: Check) -> None:
    """A rank that crashes in native code: named with its frame."""
    _crash(check, "segv", "sigsegv")


def gpu_crash(check: Check) -> None:
    """A rank whose kernel reads beyond its memory: named, though all others lose it."""
    if check.gpus:
        _crash(check, "illegal-access", "cuda_ima")


def _crash(check: Check, fault: str, kind: str) -> None:
    rank = check.ranks - 1
    told = f"fault=rank={rank},phase=serving,kind={fault},after=0"
    check.run("relaunch", "--reset", "--set", told, "--wait")
    fallen = check.wait(fault, lambda s: bool((s["launch"].get("verdict") or {}).get("final")), 30)
    if fallen is None:
        return
    check.run("triage")
    verdict = fallen["launch"]["verdict"]
    check.keep(f"{fault}-verdict.json", json.dumps(verdict, indent=1))
    good = verdict["root_ranks"] == [rank] and verdict["kind"] == kind
    check.tell(f"{fault} verdict", f"{verdict['headline']}; {verdict['cause']}", good=good)


def main() -> int:
    """Do all steps; return the exit code."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("folder", type=Path)
    parser.add_argument("--model", default="moe-tiny")
    parser.add_argument("--limit", type=float, default=150.0, help="seconds for everything")
    parser.add_argument("--ranks", type=int, help="default: one a GPU; 8 without one")
    parser.add_argument("--drills", action="store_true", help="faults in every phase, alone")
    args = parser.parse_args()
    check = Check(args.folder.absolute(), args.model, args.limit, args.ranks)
    steps = (doctor, launch, gpus, stacks, ladder, hang, crash, gpu_crash)
    try:
        for step in (drills, sound) if args.drills else steps:
            began = time.monotonic()
            step(check)
            print(f"     {step.__name__}: {time.monotonic() - began:.1f} s", flush=True)
    except LateError:
        check.tell("limit", f"{args.limit:.0f} s are over", good=False)
    finally:
        check.close()
    return min(check.failed, 1)


if __name__ == "__main__":
    sys.exit(main())
