"""vLLM for real under the panel, on the GPUs of this host.

    python tools/vllm_check.py EVIDENCE [--python PYTHON] [--seconds 280]

PYTHON is the interpreter that has vLLM. A small random checkpoint is served with one GPU and, where
there are two, with both: launch, figures, a completion, a killed worker, a killed API server, a
stop. Nothing may hold a GPU afterwards. The folder EVIDENCE becomes the panel's home (profile,
ledger, launches); a table is printed. Exit code 1 where a step failed or time ran out.
"""

from __future__ import annotations

import argparse
import json
import os
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import time
import traceback
import urllib.request
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any, NamedTuple, TypeVar

import pynvml

from panel.commands._socket import Client
from panel.config.home import find_home
from panel.config.profiles import save_profile
from panel.domain.flags import Flag, Installation, Profile
from panel.domain.plan import Plan
from panel.domain.series import Series
from panel.domain.snapshot import LaunchView, ProcessView
from panel.domain.states import LaunchState
from panel.domain.verdict import Verdict
from panel.domain.wire import Accepted, Down, LaunchRecord, Relaunch, Up
from panel.supervisor import procfs
from panel.supervisor.start import ensure_running
from panel.widgets.words import taken

T = TypeVar("T")

NAME = "vllm-check"
RESERVE_S = 25.0
"""Kept of the time for cleaning up."""
# Multicast objects of a process that dies badly can put a host's GPUs out of service.
ENVIRONMENT = {
    "NCCL_NVLS_ENABLE": "0",
    "TORCH_SYMM_MEM_DISABLE_MULTICAST": "1",
    "NVSHMEM_DISABLE_NVLS": "1",
    "HF_HUB_OFFLINE": "1",
    "VLLM_NO_USAGE_STATS": "1",
    "DO_NOT_TRACK": "1",
    "VLLM_USE_FLASHINFER_SAMPLER": "0",
    "VLLM_ALLREDUCE_USE_SYMM_MEM": "0",
}
PROMPT = list(range(5, 69))
TOKENS = 64


class OutOfTimeError(Exception):
    """The whole check has to end now."""


class Row(NamedTuple):
    """What became of a step."""

    name: str
    outcome: str
    seconds: float
    text: str


class Table:
    """The steps, printed as they end."""

    def __init__(self) -> None:
        self.rows: list[Row] = []
        self._began = time.monotonic()
        self.out_of_time = False

    def step(self, name: str, do: Callable[[], str]) -> bool:
        """Do one step, which returns what it found; whether it went well."""
        began = time.monotonic()
        if self.out_of_time:
            self._add(Row(name, "not run", 0.0, "out of time"))
            return False
        try:
            outcome, text = "ok", do()
        except OutOfTimeError:
            self.out_of_time = True
            outcome, text = "FAILED", "out of time"
        except Exception as error:
            traceback.print_exc()
            outcome, text = "FAILED", f"{type(error).__name__}: {error}"
        self._add(Row(name, outcome, time.monotonic() - began, text))
        return outcome == "ok"

    def _add(self, row: Row) -> None:
        self.rows.append(row)
        at = time.monotonic() - self._began
        print(f"{at:6.1f} s  {row.outcome:8}{row.seconds:6.1f} s  {row.name}: {row.text}")
        sys.stdout.flush()


class Check:
    """The steps on one supervisor."""

    def __init__(self, table: Table, python: str) -> None:
        self._table = table
        self._python = python
        home = find_home()
        self._home = home
        self._client = Client(ensure_running(home))
        self._uuids: set[str] = set()

    def prepare(self, checkpoint: Path) -> None:
        """Make checkpoint and profile; ask for flags and plan."""
        step = self._table.step
        tool = Path(__file__).with_name("small_checkpoint.py")
        made = step("checkpoint", lambda: _run([self._python, str(tool), str(checkpoint)]))
        profile = Profile(
            name=NAME,
            engine="vllm",
            installation=Installation(python=self._python),
            flags={
                "model": str(checkpoint),
                "host": "127.0.0.1",
                "port": str(_free_port()),
                "max-model-len": "4096",
                "max-num-seqs": "64",
                "gpu-memory-utilization": "0.5",
                "enforce-eager": "true",
            },
        )
        save_profile(self._home, profile)
        if made:
            step("flags of the installed version", self._flags)
            step("plan", self._plan)

    def launch(self, name: str, ready_s: float, relaunch: bool = False, **flags: str) -> bool:
        """Launch and look at all that a healthy launch shows."""
        step = self._table.step
        body = Relaunch(set=flags) if relaunch else Up(profile=NAME, set=flags)
        target = "/v1/relaunch" if relaunch else "/v1/up"

        def serve() -> str:
            number = self._client.post(target, body, Accepted).launch
            assert number is not None
            launch = self._wait(number, _known, ready_s)
            self._uuids.add(launch.uuid)
            if launch.state is not LaunchState.SERVING:
                raise AssertionError(_told(launch))
            ranks = ", ".join(f"{each.rank}: {each.title}" for each in launch.ranks)
            return f"#{number} {' '.join(launch.chips)} ready after {launch.ready_s} s; {ranks}"

        if not step(name, serve):
            return False
        step(f"{name}: completion by token ids", self._complete)
        step(f"{name}: figures", self._figures)
        step(f"{name}: whose GPU is which", self._gpus)
        step(f"{name}: memory", self._memory)
        return True

    def kill_rank(self, name: str) -> None:
        """Kill the last worker."""

        def accused(launch: LaunchView, victim: ProcessView) -> bool:
            return launch.verdict is not None and launch.verdict.root_ranks == (victim.rank,)

        self._kill(name, lambda launch: launch.ranks[-1], accused)

    def kill_server(self, name: str) -> None:
        """Kill the API server, which leaves EngineCore and workers to themselves."""

        def accused(launch: LaunchView, _: ProcessView) -> bool:
            return launch.verdict is not None and launch.verdict.kind == "frontend_died"

        def server(launch: LaunchView) -> ProcessView:
            return next(each for each in launch.processes if not each.title)

        self._kill(name, server, accused)

    def down(self, name: str) -> None:
        """Stop as an operator does."""

        def stop() -> str:
            launch = self._launch()
            self._client.post("/v1/down", Down(), Accepted)
            ended = self._wait(launch.id, _over, 60.0)
            assert ended.state is LaunchState.STOPPED, _told(ended)
            return f"{_told(ended)}; {self._free()}"

        self._table.step(name, stop)

    def end(self) -> str:
        """Shut all down; return what is left."""
        with suppress(Exception):
            self._client.post("/v1/shutdown", Down(now=True), Accepted)
        _until(lambda: not self._left(), 10.0)
        for pid in self._left():
            with suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
        return self._free()

    # Steps

    def _flags(self) -> str:
        flags = self._client.get(f"/v1/flags?profile={NAME}", list[Flag])
        kept = list((self._home.state / "engines").glob("vllm-*.json"))
        asked = f"its own parser ({kept[0].name})" if kept else "its source"
        assert len(flags) > 100, f"only {len(flags)} flags"
        return f"{len(flags)} flags, by {asked}"

    def _plan(self) -> str:
        _until(lambda: self._client.snapshot().gpus, 20.0)
        plan = self._client.post("/v1/plan?base=profile", Up(profile=NAME), Plan)
        problems = "; ".join(each.text for each in plan.problems) or "no problems"
        parts = ", ".join(f"{each.category} {each.predicted / 2**30:.2f}" for each in plan.memory)
        assert not plan.refused, problems
        assert plan.fit is not None, "no memory plan: the GPUs are not known"
        assert not plan.fit.estimated, "the checkpoint's headers were not read"
        return f"vllm {plan.version}, GiB: {parts}; {plan.fit.kv_tokens} KV tokens; {problems}"

    def _complete(self) -> str:
        launch = self._launch()
        body = {
            "model": launch.flags["model"],
            "prompt": PROMPT,
            "max_tokens": TOKENS,
            "temperature": 0,
            "ignore_eos": True,
            "return_token_ids": True,
        }
        request = urllib.request.Request(
            f"{launch.url}/v1/completions",
            json.dumps(body).encode(),
            {"Content-Type": "application/json"},
        )
        with urllib.request.urlopen(request, timeout=60) as reply:
            answer: dict[str, Any] = json.load(reply)
        ids = answer["choices"][0]["token_ids"]
        assert answer["usage"]["completion_tokens"] == len(ids) == TOKENS, answer["usage"]
        return f"{len(ids)} tokens: {ids[:4]}…"

    def _figures(self) -> str:
        number = self._launch().id
        wanted = ("engine.tok_s", "engine.kv", "engine.running")

        def seen() -> Series | None:
            path = f"/v1/launches/{number}/series?limit=60"
            series = self._client.get(path, Series)
            there = all(any(v is not None for v in series.values.get(n, ())) for n in wanted)
            return series if there else None

        series = _until(seen, 15.0)
        assert series is not None, "no figures of the engine"
        metrics = self._launch().metrics
        assert metrics is not None
        assert metrics.kv_total > 0
        best = max(value or 0.0 for value in series.values["engine.tok_s"])
        return f"{', '.join(series.values)}; best {best:.0f} tok/s, cache of {metrics.kv_total}"

    def _memory(self) -> str:
        found = self._launch().memory
        parts = {each.part for each in found}
        assert {"weights", "KV cache", "KV tokens"} <= parts, f"the log told only {parts}"
        return ", ".join(taken(found))

    def _gpus(self) -> str:
        def seen() -> dict[int, int | None] | None:
            snapshot = self._client.snapshot()
            found = {gpu.sample.index: gpu.rank for gpu in snapshot.gpus}
            ranks = {each.rank for each in snapshot.launch.ranks} if snapshot.launch else set()
            return found if ranks and ranks <= set(found.values()) else None

        found = _until(seen, 10.0)
        assert found is not None, f"GPUs without ranks: {self._client.snapshot().host.gpu_note}"
        return f"rank by GPU: {found}"

    def _kill(
        self,
        name: str,
        pick: Callable[[LaunchView], ProcessView],
        accused: Callable[[LaunchView, ProcessView], bool],
    ) -> None:
        def kill() -> str:
            launch = self._launch()
            victim = pick(launch)
            began = time.monotonic()
            os.kill(victim.pid, signal.SIGKILL)
            failing = self._wait(launch.id, _judged, 20.0)
            told_s = time.monotonic() - began
            ended = self._wait(launch.id, _over, 90.0)
            down_s = time.monotonic() - began
            assert ended.state is LaunchState.CRASHED, _told(ended)
            assert accused(ended, victim), _told(ended)
            early = failing.verdict.headline if failing.verdict else ""
            return (
                f"pid {victim.pid} ({victim.title or 'API server'}) killed; after {told_s:.2f} s"
                f" {early!r}; down after {down_s:.1f} s: {_told(ended)}; {self._free()}"
            )

        self._table.step(name, kill)

    # Looking

    def _launch(self) -> LaunchView:
        launch = self._client.snapshot().launch
        assert launch is not None
        return launch

    def _wait(
        self, number: int, reached: Callable[[LaunchView], bool], seconds: float
    ) -> LaunchView:
        for snapshot in self._client.snapshots(seconds):
            launch = snapshot.launch
            if launch is not None and launch.id == number and reached(launch):
                return launch
        raise AssertionError("the supervisor ended")

    def _left(self) -> list[int]:
        return [pid for uuid in self._uuids for pid in procfs.marked({procfs.LAUNCH_MARKER: uuid})]

    def _free(self) -> str:
        """Return that nothing lives and no GPU is held, or raise `AssertionError`."""
        assert not self._left(), f"processes of the gang live: {self._left()}"
        _until(lambda: not any(_holders()), 5.0)
        held = _holders()
        assert not any(held), f"GPUs are held by {held}"
        return f"nothing holds any of {len(held)} GPUs"

    def records(self) -> Iterator[str]:
        """Yield what the ledger says of each launch, oldest first."""
        for each in reversed(self._client.get("/v1/launches?limit=20", list[LaunchRecord])):
            phases = ", ".join(f"{name} {seconds:.1f}" for name, seconds in each.phases.items())
            yield f"#{each.id} {each.state}, ready {each.ready_s} s ({phases}): {each.outcome}"


def _known(launch: LaunchView) -> bool:
    """Serving with all ranks known, or ended."""
    whole = len(launch.ranks) == launch.world_size
    return not launch.state.live or (launch.state is LaunchState.SERVING and whole)


def _judged(launch: LaunchView) -> bool:
    return launch.verdict is not None and launch.verdict.failed


def _over(launch: LaunchView) -> bool:
    return not launch.state.live and launch.verdict is not None and launch.verdict.final


def _told(launch: LaunchView) -> str:
    verdict: Verdict | None = launch.verdict
    if verdict is None:
        return f"{launch.state}, no verdict"
    roots = f" {verdict.root_ranks}" if verdict.root_ranks else ""
    return f"{launch.state}, {verdict.kind or verdict.status}{roots}: {verdict.headline}"


def _holders() -> list[list[int]]:
    """Return the processes that hold memory of each GPU."""
    handles = map(pynvml.nvmlDeviceGetHandleByIndex, range(pynvml.nvmlDeviceGetCount()))
    return [
        [process.pid for process in pynvml.nvmlDeviceGetComputeRunningProcesses(handle)]
        for handle in handles
    ]


def _until(condition: Callable[[], T], seconds: float) -> T:
    """Return the first true value of `condition`, or its last one."""
    deadline = time.monotonic() + seconds
    while not (value := condition()) and time.monotonic() < deadline:
        time.sleep(0.1)
    return value


def _run(words: list[str]) -> str:
    done = subprocess.run(words, capture_output=True, text=True, timeout=120)
    assert done.returncode == 0, done.stderr[-2000:]
    return "made"


def _free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


@contextmanager
def _hard_limit(seconds: float) -> Iterator[None]:
    """Raise `OutOfTimeError` in the step that runs then; kill this process if need be."""

    def ring(*_: object) -> None:
        signal.signal(signal.SIGALRM, signal.SIG_DFL)
        signal.setitimer(signal.ITIMER_REAL, RESERVE_S)
        raise OutOfTimeError

    signal.signal(signal.SIGALRM, ring)
    signal.setitimer(signal.ITIMER_REAL, max(1.0, seconds - RESERVE_S))
    yield
    signal.setitimer(signal.ITIMER_REAL, 0)


def check(table: Table, python: str, scratch: Path) -> None:
    """Run all steps."""
    steps = Check(table, python)
    gpus = pynvml.nvmlDeviceGetCount()
    both = {"tensor-parallel-size": "2", "ep": "on"} if gpus > 1 else {}
    word = "TP2 + EP" if both else "TP1 again"
    try:
        table.step("GPUs", steps._free)
        steps.prepare(scratch / "checkpoint")
        if steps.launch("TP1", 150.0):
            steps.kill_rank("TP1: a killed worker")
        if steps.launch(word, 120.0, relaunch=True, **both):
            steps.kill_server(f"{word}: a killed API server")
        if both and steps.launch(f"{word}, relaunched", 120.0, relaunch=True):
            steps.kill_rank(f"{word}: a killed worker")
        if steps.launch("last", 120.0, relaunch=True):
            steps.down("a stop")
        if not table.out_of_time:
            print("\n".join(steps.records()))
    finally:
        table.out_of_time = False
        table.step("all ended", steps.end)


def main() -> None:
    """Check and print."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("evidence", type=Path)
    parser.add_argument("--python", default=sys.executable)
    parser.add_argument("--seconds", type=float, default=280.0)
    args = parser.parse_args()
    args.evidence.mkdir(parents=True, exist_ok=True)
    os.environ |= ENVIRONMENT | {"MOEPANEL_HOME": str(args.evidence.absolute())}
    pynvml.nvmlInit()
    table = Table()
    scratch = Path(tempfile.mkdtemp(prefix="vllm-check-"))
    try:
        with _hard_limit(args.seconds):
            check(table, args.python, scratch)
    except OutOfTimeError:
        table.out_of_time = True
    finally:
        shutil.rmtree(scratch, ignore_errors=True)
    bad = [row.name for row in table.rows if row.outcome != "ok"]
    print(f"{len(table.rows)} steps, not ok: {', '.join(bad) or 'none'}")
    sys.exit(bool(bad) or table.out_of_time)


if __name__ == "__main__":
    main()
