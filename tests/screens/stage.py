"""A scripted node for screens: the interface of `Client`, fixed figures, no clock."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, AsyncIterator, Callable, Mapping, Sequence
from typing import Any

import msgspec
from textual.pilot import Pilot

from panel.client import Lost
from panel.domain.errors import NotFoundError, PanelError, UsageError
from panel.domain.flags import Flag, Profile, Request
from panel.domain.hang import HangView, Step
from panel.domain.notes import Note, Notes
from panel.domain.plan import Memory, Plan, Problem, Resolved, changes
from panel.domain.series import Series
from panel.domain.snapshot import (
    Host,
    LaunchView,
    Metrics,
    ProcessExit,
    ProcessView,
    Snapshot,
    Supervisor,
)
from panel.domain.stacks import Stacks
from panel.domain.states import LaunchState, ProcessState
from panel.domain.verdict import Advice, Evidence, Related, Verdict
from panel.domain.wire import Accepted, Down, LaunchRecord, Relaunch, Up
from panel.screens.panel import Panel
from panel.talk import Delta, Turn
from tests.screens.log_stage import Logs

SIZES = [(80, 24), (120, 40), (200, 60)]
FLAGS = {"model-path": "moe-tiny", "port": "30000", "tp-size": "8"}
TINY = Profile(
    name="tiny", engine="builtin", flags=FLAGS, shipped=True,
    note="eight ranks, shipped model, runs without a GPU",
)  # fmt: skip
KIMI = Profile(name="kimi", engine="builtin", flags={"model-path": "/models/kimi"}, note="big")
SPEED = (0, 40, 120, 260, 380, 410, 396, 418, 402, 425, 409, 412)


def process(rank: int | None, state: ProcessState, source: str = "", **more: Any) -> ProcessView:
    """Return a process whose figures follow from its rank."""
    number = 9 if rank is None else rank
    usual: dict[str, Any] = {
        "source": source or f"rank-{rank}", "rank": rank, "pid": 41200 + number, "state": state,
        "phase": "serving", "beat_age": 0.1, "cpu": 20.0 + number, "rss": 190_000_000 + number,
        "threads": 2, "step": 18_231, "last_line": "decode running 4 waiting 0 kv 31%",
    }  # fmt: skip
    return ProcessView(**(usual | more))


def ranks(state: ProcessState = ProcessState.SERVING, **more: Any) -> tuple[ProcessView, ...]:
    """Return eight ranks in one state, and the front end."""
    front = process(None, state, "frontend", beat_age=None)
    return (*(process(rank, state, **more) for rank in range(8)), front)


def launch(state: LaunchState = LaunchState.SERVING, **more: Any) -> LaunchView:
    """Return launch 17 of `tiny`."""
    usual: dict[str, Any] = {
        "id": 17, "uuid": "u17", "request": Request(profile="tiny"), "engine": "builtin",
        "version": "0.1.0", "state": state, "world_size": 8, "t0_unix": 1_796_000_000.0,
        "t": 751.0, "url": "http://127.0.0.1:30000", "chips": ("tp8", "graphs≤16"),
        "flags": FLAGS, "phase": "serving", "ready_s": 5.2, "usual_ready_s": 6.1,
        "processes": ranks(),
    }  # fmt: skip
    return LaunchView(**(usual | more))


def snapshot(of: LaunchView | None, seq: int = 1) -> Snapshot:
    """Return a snapshot of the node gpu-a."""
    return Snapshot(
        seq=seq,
        supervisor=Supervisor(
            pid=4100, version="0.1.0", started_unix=1_795_999_000.0, home="/state/moepanel",
            socket="/run/moepanel/supervisor.sock",
        ),
        host=Host(
            name="gpu-a", cpus=16, load=1.2, memory_total=128 << 30, memory_available=101 << 30,
            gpu_note="no GPU figures: no NVIDIA driver answers",
        ),
        profiles=(TINY, KIMI),
        launch=of,
    )  # fmt: skip


def serving(**more: Any) -> Snapshot:
    """Return a node that serves four requests."""
    metrics = Metrics(
        tok_s=412.0, history=SPEED, running=4, waiting=0, kv_used=5_120, kv_total=16_384,
        acceptance=2.6, ttft_ms=91.0,
    )  # fmt: skip
    chips = ("tp8", "ep8", "ngram:4", "graphs≤16")
    return snapshot(launch(**({"metrics": metrics, "chips": chips} | more)))


def launching() -> Snapshot:
    """Return a node in the middle of a launch, two ranks behind."""
    busy = ProcessState.BUSY
    behind = {"phase": "weights", "done": 43, "total": 100, "step": 0, "last_line": "shard 3 of 7"}
    ahead = {"phase": "capture", "done": 3, "total": 6, "detail": 8, "step": 0,
             "last_line": "captured batch 4"}  # fmt: skip
    processes = tuple(process(r, busy, **(behind if r in (3, 6) else ahead)) for r in range(8))
    return snapshot(
        launch(LaunchState.LAUNCHING, t=4.2, ready_s=None, phase="weights", processes=processes)
    )


def crashed() -> Snapshot:
    """Return a node whose rank 3 failed an assertion in capture."""
    killed = ProcessExit(t=6.43, code=13, words="lost another rank (exit code 13)")
    failed = ProcessExit(t=4.12, code=1, words="ended by an exception (exit code 1)")
    victims = {"phase": "capture", "exit": killed, "beat_age": None}
    processes = [process(rank, ProcessState.STOPPED, **victims) for rank in range(8)]
    processes[3] = process(3, ProcessState.FAILED, phase="capture", exit=failed, done=3, total=6,
                           detail=8)  # fmt: skip
    verdict = Verdict(
        status="crashed", final=True, t=4.4, t_first=4.12, kind="assertion", family="capture",
        headline="rank 3 failed first: AssertionError in graph capture (batch 8): "
        "expert_location_metadata is not None",
        root_ranks=(3,), secondary={str(r): "victim" for r in range(8) if r != 3},
        phase="capture", confidence="high",
        evidence=(
            Evidence(source="rank-3", offset=900, line=41, text="AssertionError: expert_location"
                     "_metadata is not None [red]not markup[/red]"),
        ),
        advice=(Advice(confirm="the same launch without the drill", change={"fault": ""}),),
    )  # fmt: skip
    return snapshot(
        launch(
            LaunchState.CRASHED, t=6.5, ready_s=None, phase="capture", processes=tuple(processes),
            verdict=verdict, chips=("tp8", "graphs≤16", "drill"), folder="/state/launches/000017",
        )
    )  # fmt: skip


def hung() -> Snapshot:
    """Return a node whose rank 5 stands still while it serves, and the others wait for it."""
    stale = [
        process(rank, ProcessState.STALE, beat_age=24.0 if rank == 5 else 23.5, step=18_230)
        for rank in range(8)
    ]
    verdict = Verdict(
        status="hung", t=751.0, t_first=727.0, kind="unknown_hang", family="hang",
        headline="rank 5 has not stepped for 24 s in serving", root_ranks=(5,), phase="serving",
        confidence="medium",
        advice=(Advice(confirm="take stacks of all ranks twice: the one whose stack stands still "
                       "is at fault"),),
    )  # fmt: skip
    return serving(processes=tuple(stale), verdict=verdict)


TRACE = (
    "Traceback (most recent call last):",
    '  File "/srv/engine/rank.py", line 77, in run_rank',
    "    ready = start(place, life)",
    "            ^^^^^^^^^^^^^^^^^^",
    '  File "/srv/engine/graphs.py", line 49, in capture',
    "    assert expert_location_metadata is not None",
    "AssertionError: expert_location_metadata is not None [red]not markup[/red]",
)


def triaged(folder: str = "/state/launches/000017") -> Node:
    """Return a node whose crash has all its evidence: logs with arrival times, the ledger."""
    node = Node()
    start = [f"batch size {2 ** (7 - line)}: captured" for line in range(6)]
    for rank in range(8):
        more, later = (
            (TRACE, 4.1) if rank == 3 else (("rank 3 (pid 41203) is gone",), 4.15 + rank / 50)
        )
        lines = [*(f"INFO {text}" for text in start), *(f"ERROR {text}" for text in more)]
        stamped = [f"[2026-11-30 12:00:04.000 TP{rank} capture] {line}\n" for line in lines]
        node.texts[f"rank-{rank}"] = "".join(stamped)
        node.arrivals[f"rank-{rank}"] = [3.0 + n / 10 for n in range(6)] + [later] * len(more)
    node.records = [
        LaunchRecord(
            id=number, uuid=f"u{number}", request=Request(profile=profile), engine="builtin",
            version="0.1.0", state=state, t0_unix=1_796_000_000.0, ready_s=ready,
            flags=FLAGS | more, versions={"python": "3.12.3", "torch": torch},
            env={"PYTHONUNBUFFERED": "1", "HF_TOKEN": "hidden-hidden"},
        )
        for number, profile, state, ready, more, torch in [
            (17, "tiny", LaunchState.CRASHED, None, {"ep-size": "8"}, "2.13.0"),
            (16, "kimi", LaunchState.STOPPED, 9.0, {}, "2.13.0"),
            (15, "tiny", LaunchState.CRASHED, 5.0, {}, "2.13.0"),
            (14, "tiny", LaunchState.STOPPED, 5.0, {"port": "30001"}, "2.12.1"),
        ]
    ]  # fmt: skip
    whole = with_sizes(crashed(), {name: len(text) for name, text in node.texts.items()})
    assert whole.launch is not None
    assert whole.launch.verdict is not None
    line = "AssertionError: expert"
    offset = node.texts["rank-3"].rindex("\n", 0, node.texts["rank-3"].index(line)) + 1
    verdict = msgspec.structs.replace(
        whole.launch.verdict,
        t_first=4.1,
        cause="the all-to-all backend needs expert metadata; this model class offers none, so it "
        "is None whatever --init-expert-location says",
        evidence=(Evidence(source="rank-3", offset=offset, line=13, text=TRACE[-1]),),
        advice=(
            Advice(confirm="the same launch without expert parallelism", change={"ep-size": "1"}),
            Advice(why="then the drill is to blame", change={"fault": ""}),
        ),
        related=(
            Related(kind="assertion", sign="a bare assertion in the dispatch of experts"),
            Related(kind="capture_illegal_op", sign="CUDA forbids what was done while capturing"),
        ),
        missing=("kernel log",),
    )
    node.say(
        msgspec.structs.replace(
            whole, launch=msgspec.structs.replace(whole.launch, verdict=verdict, folder=folder)
        )
    )
    return node


def log_text(source: str, lines: int) -> str:
    """Return the log of a source: two lines a second, with markup that must not act."""
    tag = f"TP{source[5:]}" if source.startswith("rank-") else "API"
    texts = []
    for number in range(lines):
        level, text = "INFO", f"decode step {number} running 4 [bold]kv[/bold] 31%"
        if number % 10 == 7:
            level, text = "WARNING", f"step {number} took 41 ms, usual 2 ms"
        if number % 25 == 24:
            level, text = "ERROR", f"request {number} refused: prompt of 4100 tokens"
        texts.append(f"[2026-11-30 12:00:{number % 60:02}.000 {tag} serving] {level} {text}\n")
    return "".join(texts)


class Node(Logs):
    """What `Client` is to the screens; requests are kept, news is said by the test."""

    def __init__(self, first: Snapshot | Lost | None = None) -> None:
        super().__init__()
        self.news: asyncio.Queue[Snapshot | Lost] = asyncio.Queue()
        if first is not None:
            self.news.put_nowait(first)
        self.requests: list[object] = []
        self.problems: tuple[Problem, ...] = ()
        self.refuses: PanelError | None = None
        self.records: list[LaunchRecord] = []
        self.noted: list[Note] = []
        self.figures = Series()
        self.stacked: Stacks | None = None
        self.ladder: HangView | None = None
        self.closed = False

    def say(self, word: Snapshot | Lost) -> None:
        """Send the next word."""
        self.news.put_nowait(word)

    def write(self, lines: int, *sources: str) -> dict[str, int]:
        """Let the sources have so many lines; return the sizes for a snapshot."""
        for source in sources:
            self.texts[source] = log_text(source, lines)
        return {source: len(text.encode()) for source, text in self.texts.items()}

    async def close(self) -> None:
        self.closed = True

    async def events(self) -> AsyncIterator[Snapshot | Lost]:
        while True:
            yield await self.news.get()

    async def plan(self, request: Up | Relaunch) -> Plan:
        self.requests.append(request)
        asked = dict(request.set)
        fraction = asked.get("mem-fraction-static", "0.85")
        if not fraction.replace(".", "").isdigit():
            raise UsageError(f"mem-fraction-static: {fraction!r} is not a number")
        chips = ["tp8"]
        if asked.get("ep", "off") != "off":
            chips.append("ep8")
        if asked.get("spec", "off") != "off":
            chips.append(asked["spec"])
        chips.append(f"graphs≤{asked.get('graphs', '16')}")
        own = {n: t for n, t in asked.items() if n not in ("ep", "spec", "graphs")}
        values = FLAGS | own
        profile = (request.profile or "tiny") if isinstance(request, Relaunch) else "tiny"
        return Plan(
            request=Request(profile=profile, set=asked), engine="builtin", version="0.1.0",
            world_size=8, chips=tuple(chips),
            flags=tuple(Resolved(name=n, value=t, origin="profile") for n, t in values.items()),
            argv=tuple(f"--{n}={t}" for n, t in values.items()),
            memory=(Memory(category="weights", predicted=3 << 20),
                    Memory(category="workspace", predicted=1 << 20),
                    Memory(category="kv", predicted=128 << 20)),
            problems=self.problems, changes=changes(FLAGS, values),
        )  # fmt: skip

    async def flags(self, profile: str) -> list[Flag]:
        return [
            Flag(name="ep-size", kind="int", default="1", help="Ranks that share the experts",
                 group="parallel", toggle="ep", common=True),
            Flag(name="mem-fraction-static", kind="float", default="0.85", group="memory",
                 help="Share of memory for weights and KV cache", common=True),
            Flag(name="port", kind="int", default="30000", help="Port of the API", group="api",
                 common=True),
            Flag(name="seed", kind="int", default="0", help="Seed of sampling", group="model"),
        ]  # fmt: skip

    async def relaunch(self, request: Relaunch) -> Accepted:
        return self._take(request)

    async def down(self, request: Down) -> Accepted:
        return self._take(request)

    async def series(self, launch: int, names: Sequence[str] = (), limit: int = 600) -> Series:
        found = self.figures.last(limit)
        values = {n: v for n, v in found.values.items() if n.startswith(tuple(names))}
        return Series(times=found.times, values=values)

    async def stacks(self, launch: int, *, native: bool = False) -> Stacks:
        self._take(("stacks", native))
        if self.stacked is None:
            raise NotFoundError("no process of it is alive")
        return msgspec.structs.replace(self.stacked, native=native)

    async def hang(self, launch: int) -> HangView:
        if self.ladder is None:
            raise NotFoundError("launch 17 does not run")
        return self.ladder

    async def hang_step(self, launch: int, step: Step) -> HangView:
        self._take(step)
        return await self.hang(launch)

    async def notes(self, launch: int) -> Notes:
        return Notes(notes=tuple(self.noted))

    async def add_note(self, launch: int, text: str) -> Notes:
        self._take(("note", text))
        self.noted.append(Note(text=text, t_unix=1_796_000_100.0))
        return Notes(notes=tuple(self.noted))

    async def launches(self, limit: int = 50) -> list[LaunchRecord]:
        return self.records

    def _take(self, request: object) -> Accepted:
        if self.refuses is not None:
            raise self.refuses
        self.requests.append(request)
        return Accepted(launch=18)


class Engine:
    """What `EngineClient` is to the chat screen: an answer of which the test says how far it is."""

    pieces: Sequence[str] = ("The", " sea", " is", " deep", ".")
    until: int = 5
    closed = 0

    def __init__(self, url: str) -> None:
        self.url = url

    async def close(self) -> None:
        type(self).closed += 1

    async def chat(self, turns: Sequence[Turn], max_tokens: int) -> AsyncGenerator[Delta, None]:
        for number, piece in enumerate(self.pieces):
            if number >= self.until:
                await asyncio.Event().wait()
            yield Delta(piece)
        yield Delta("", tokens=len(self.pieces))


def panel(node: Node, **more: Any) -> Panel:
    """Return the application on a scripted node."""
    return Panel(node, **more)  # type: ignore[arg-type]


async def until(pilot: Pilot[None], true: Callable[[], bool], what: str = "") -> None:
    """Wait, at most five seconds, until something is true."""
    for _ in range(500):
        await pilot.pause()
        if true():
            await pilot.pause()
            return
        await asyncio.sleep(0.01)
    raise AssertionError(f"never came true: {what}\n{shown(pilot)}")


def shown(pilot: Pilot[None]) -> str:
    """Return the text on screen."""
    app = pilot.app
    width, height = app.size
    lines = app.screen._compositor.render_strips()
    assert len(lines) <= height
    return "\n".join(strip.text.rstrip()[:width] for strip in lines)


def with_sizes(of: Snapshot, sizes: Mapping[str, int]) -> Snapshot:
    """Return a snapshot whose launch has logs of these sizes."""
    assert of.launch is not None
    return msgspec.structs.replace(
        of, launch=msgspec.structs.replace(of.launch, log_sizes=dict(sizes))
    )
