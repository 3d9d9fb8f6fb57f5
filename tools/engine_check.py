"""An engine of somebody else for real under the panel: the steps that all of them go through.

`Engine` says what differs; `vllm_check.py` and `sglang_check.py` are run.
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
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any, Literal, NamedTuple, TypeVar

import msgspec
import pynvml

from panel.commands._socket import Client
from panel.commands.down import Ended
from panel.config.home import find_home
from panel.config.profiles import save_profile
from panel.domain.events import Event, Exit, Gang, Operator, Signal, Spawn
from panel.domain.flags import Flag, Installation, Profile
from panel.domain.plan import Plan
from panel.domain.series import Series
from panel.domain.snapshot import LaunchView, ProcessView
from panel.domain.states import LaunchState
from panel.domain.verdict import Verdict
from panel.domain.wire import Accepted, Down, LaunchRecord, Relaunch, Up
from panel.supervisor import procfs
from panel.supervisor.evidence import EventReader, Folder
from panel.supervisor.start import ensure_running
from panel.widgets.words import taken

T = TypeVar("T")

RESERVE_S = 25.0
"""Kept of the time for cleaning up."""
READY_S = 200.0
STOP_S = 60.0
# Multicast objects of a process that dies badly can put a host's GPUs out of service.
ENVIRONMENT = {
    "NCCL_NVLS_ENABLE": "0",
    "TORCH_SYMM_MEM_DISABLE_MULTICAST": "1",
    "NVSHMEM_DISABLE_NVLS": "1",
    "HF_HUB_OFFLINE": "1",
    "DO_NOT_TRACK": "1",
}
PROMPT = list(range(5, 69))
TOKENS = 64

End = Literal["kill-rank", "kill-server", "serve-stop"]
"""How a launch ends."""


class Engine(NamedTuple):
    """What is particular to one engine."""

    name: str
    environment: dict[str, str]
    flags: dict[str, str]
    """But for model, host and port."""
    model_flag: str
    both: dict[str, str]
    """Flags that take two GPUs."""
    ends: tuple[End, ...]
    """Of all launches, in their order."""
    exits: frozenset[int | None]
    """Codes by which its launcher may end when it is stopped."""
    generate: Callable[[LaunchView, list[int], int], tuple[str, dict[str, Any]]]
    """Path and body that have a prompt continued by so many tokens."""
    tokens: Callable[[dict[str, Any]], list[int]]
    """Of the answer."""
    server: Callable[[LaunchView], ProcessView]
    """The process that has the API."""


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

    def __init__(self, table: Table, engine: Engine, python: str) -> None:
        self._table = table
        self._engine = engine
        self._python = python
        home = find_home()
        self._home = home
        self._client = Client(ensure_running(home))
        self._uuids: set[str] = set()
        self._profile = f"{engine.name}-check"

    def prepare(self, checkpoint: Path) -> None:
        """Make profile and checkpoint, the latter while flags are asked for; ask for the plan."""
        step = self._table.step
        tool = Path(__file__).with_name("small_checkpoint.py")
        place = {self._engine.model_flag: str(checkpoint), "host": "127.0.0.1"}
        profile = Profile(
            name=self._profile,
            engine=self._engine.name,
            installation=Installation(python=self._python),
            flags=place | {"port": str(_free_port())} | self._engine.flags,
        )
        save_profile(self._home, profile)
        with ThreadPoolExecutor(1) as aside:
            making = aside.submit(_run, [self._python, str(tool), str(checkpoint)])
            step("flags of the installed version", self._flags)
            made = step("checkpoint", making.result)
        if made:
            step("plan", self._plan)

    def launch(self, name: str, flags: dict[str, str], again: bool) -> bool:
        """Launch and look at all that a healthy launch shows."""
        step = self._table.step
        body = Relaunch(set=flags) if again else Up(profile=self._profile, set=flags)
        target = "/v1/relaunch" if again else "/v1/up"

        def serve() -> str:
            number = self._client.post(target, body, Accepted).launch
            assert number is not None
            launch = self._wait(number, _known, READY_S)
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

    def finish(self, name: str, how: End) -> None:
        """End the launch that serves, and look at what is told and left."""
        match how:
            case "serve-stop":
                self._stop(name)
            case "kill-rank":
                self._kill(name, lambda launch: launch.ranks[-1], _blames_rank)
            case "kill-server":
                self._kill(name, self._engine.server, _blames_server)

    def end(self) -> str:
        """Shut all down; return what is left."""
        with suppress(Exception):
            self._client.post("/v1/shutdown", Down(now=True), Accepted)
        _until(lambda: not self._left(), 10.0)
        for pid in self._left():
            with suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
        return self.free()

    def free(self) -> str:
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

    # Steps

    def _flags(self) -> str:
        flags = self._client.get(f"/v1/flags?profile={self._profile}", list[Flag])
        kept = list((self._home.state / "engines").glob(f"{self._engine.name}-*.json"))
        asked = f"its own parser ({kept[0].name})" if kept else "its source"
        assert len(flags) > 100, f"only {len(flags)} flags"
        return f"{len(flags)} flags, by {asked}"

    def _plan(self) -> str:
        _until(lambda: self._client.snapshot().gpus, 20.0)
        plan = self._client.post("/v1/plan?base=profile", Up(profile=self._profile), Plan)
        problems = "; ".join(each.text for each in plan.problems) or "no problems"
        parts = ", ".join(f"{each.category} {each.predicted / 2**30:.2f}" for each in plan.memory)
        assert not plan.refused, problems
        assert plan.fit is not None, "no memory plan: the GPUs are not known"
        assert not plan.fit.estimated, "the checkpoint's headers were not read"
        version = f"{self._engine.name} {plan.version}"
        return f"{version}, GiB: {parts}; {plan.fit.kv_tokens} KV tokens; {problems}"

    def _complete(self) -> str:
        launch = self._launch()
        path, body = self._engine.generate(launch, PROMPT, TOKENS)
        request = urllib.request.Request(
            launch.url + path, json.dumps(body).encode(), {"Content-Type": "application/json"}
        )
        with urllib.request.urlopen(request, timeout=60) as reply:
            ids = self._engine.tokens(json.load(reply))
        assert len(ids) == TOKENS, f"{len(ids)} tokens"
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

    def _stop(self, name: str) -> None:
        """Stop a healthy engine as an operator does, by `moepanel down`."""

        def stop() -> str:
            launch = self._launch()
            assert launch.state is LaunchState.SERVING, launch.state
            began = time.monotonic()
            told = msgspec.json.decode(_panel("down", "--timeout", str(STOP_S)), type=Ended)
            down_s = time.monotonic() - began
            assert told == Ended(launch=launch.id, state=LaunchState.STOPPED), told
            ended = self._wait(launch.id, _over, 10.0)
            assert ended.state is LaunchState.STOPPED, _told(ended)
            assert not _listens(launch), f"{launch.url} still answers"
            return f"stopped in {down_s:.1f} s: {_told(ended)}; {self.free()}"

        if self._table.step(name, stop):
            self._table.step(f"{name}: exit codes", self._exits)
            self._table.step(f"{name}: evidence", self._evidence)

    def _exits(self) -> str:
        events = self._events()
        names = {each.pid: each.command or "" for each in events if isinstance(each, Spawn)}
        codes = {each.pid: each.code for each in events if isinstance(each, Exit)}
        launcher = next(iter(names))
        killed = [each.pid for each in events if isinstance(each, Signal) and each.sig == 9]
        told = ", ".join(f"{pid} {code}" for pid, code in codes.items())
        assert codes.keys() == names.keys(), f"no end of {names.keys() - codes.keys()}; {told}"
        assert codes[launcher] in self._engine.exits, f"the launcher ended by {codes[launcher]}"
        assert launcher not in killed, "the launcher had to be killed"
        rest = f"; what it left and was killed: {killed}" if killed else ""
        return f"launcher {launcher}; exit codes {told}{rest}"

    def _evidence(self) -> str:
        """See that the folder tells of a clean stop to somebody who has nothing else."""
        events = self._events()
        asked = [each.action for each in events if isinstance(each, Operator)]
        stages = [each for each in events if isinstance(each, Gang)]
        verdict = msgspec.json.decode(_panel("triage", self._launch().folder), type=Verdict)
        assert "down" in asked, asked
        assert [each.state for each in stages] == ["up", "stopping", "down"], stages
        assert not stages[-1].alive, stages[-1]
        assert (verdict.status, verdict.kind) == ("stopped", "operator_stop"), verdict.told
        assert not verdict.root_ranks, verdict.root_ranks
        took = stages[-1].t - stages[-2].t
        return f"asked for {asked[-1]}, down {took:.1f} s later; triage: {verdict.told}"

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
                f" {early!r}; down after {down_s:.1f} s: {_told(ended)}; {self.free()}"
            )

        self._table.step(name, kill)

    # Looking

    def _launch(self) -> LaunchView:
        launch = self._client.snapshot().launch
        assert launch is not None
        return launch

    def _events(self) -> list[Event]:
        return EventReader(Folder(Path(self._launch().folder))).read()

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


def _known(launch: LaunchView) -> bool:
    """Serving with all ranks known, or ended."""
    whole = len(launch.ranks) == launch.world_size
    return not launch.state.live or (launch.state is LaunchState.SERVING and whole)


def _judged(launch: LaunchView) -> bool:
    return launch.verdict is not None and launch.verdict.failed


def _over(launch: LaunchView) -> bool:
    return not launch.state.live and launch.verdict is not None and launch.verdict.final


def _blames_rank(launch: LaunchView, victim: ProcessView) -> bool:
    return launch.verdict is not None and launch.verdict.root_ranks == (victim.rank,)


def _blames_server(launch: LaunchView, _: ProcessView) -> bool:
    return launch.verdict is not None and launch.verdict.kind == "frontend_died"


def _told(launch: LaunchView) -> str:
    verdict: Verdict | None = launch.verdict
    if verdict is None:
        return f"{launch.state}, no verdict"
    roots = f" {verdict.root_ranks}" if verdict.root_ranks else ""
    return f"{launch.state}, {verdict.kind or verdict.status}{roots}: {verdict.headline}"


def _listens(launch: LaunchView) -> bool:
    with socket.socket() as probe:
        return probe.connect_ex(("127.0.0.1", int(launch.flags["port"]))) == 0


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


def _panel(*words: str) -> bytes:
    """Return what a command of the panel says in JSON."""
    argv = [sys.executable, "-m", "panel.cli", *words, "--json"]
    done = subprocess.run(argv, capture_output=True, timeout=STOP_S + 30.0)
    assert done.returncode == 0, (done.stderr + done.stdout).decode()[-2000:]
    return done.stdout


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


def check(table: Table, steps: Check, engine: Engine, ends: tuple[End, ...], scratch: Path) -> None:
    """Launch once for each of `ends`, which says how that launch is ended."""
    two = pynvml.nvmlDeviceGetCount() > 1
    try:
        table.step("GPUs", steps.free)
        steps.prepare(scratch / "checkpoint")
        for at, how in enumerate(ends):
            word = "TP2 + EP" if two and at else "TP1"
            flags = engine.both if two and at == 1 else {}
            if steps.launch(f"{word} #{at + 1}", flags, again=at > 0):
                steps.finish(f"{word} #{at + 1}: {how}", how)
        if not table.out_of_time:
            print("\n".join(steps.records()))
    finally:
        table.out_of_time = False
        table.step("all ended", steps.end)


def run(engine: Engine, words: str | None) -> int:
    """Check and print; return the exit code."""
    parser = argparse.ArgumentParser(
        description=words, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("evidence", type=Path)
    parser.add_argument("--python", default=sys.executable)
    parser.add_argument("--seconds", type=float, default=280.0)
    parser.add_argument("--only", choices=sorted(set(engine.ends)), action="append", default=[])
    args = parser.parse_args()
    args.evidence.mkdir(parents=True, exist_ok=True)
    home = {"MOEPANEL_HOME": str(args.evidence.absolute())}
    os.environ |= ENVIRONMENT | engine.environment | home
    pynvml.nvmlInit()
    table = Table()
    scratch = Path(tempfile.mkdtemp(prefix="engine-check-"))
    try:
        with _hard_limit(args.seconds):
            steps = Check(table, engine, args.python)
            check(table, steps, engine, tuple(args.only) or engine.ends, scratch)
    except OutOfTimeError:
        table.out_of_time = True
    finally:
        shutil.rmtree(scratch, ignore_errors=True)
    bad = [row.name for row in table.rows if row.outcome != "ok"]
    print(f"{len(table.rows)} steps, not ok: {', '.join(bad) or 'none'}")
    return int(bool(bad) or table.out_of_time)
