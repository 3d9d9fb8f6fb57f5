"""Events → the state of a launch. Pure: used live, on adoption and for old folders alike."""

from __future__ import annotations

from collections.abc import Iterable
from itertools import pairwise

import msgspec

from panel.domain.events import (
    Event,
    Exit,
    Gang,
    Health,
    MemoryTaken,
    Operator,
    PhaseEvent,
    Signal,
    Spawn,
    Title,
)
from panel.domain.phases import Phase
from panel.domain.states import LaunchState

_READY_ENDPOINTS = ("/ready", "/health")
"""Ours, and that of the other engines, which answers 200 only once they serve."""
_STOPS = ("down", "down_now", "relaunch", "shutdown")
_SOUND = (LaunchState.LAUNCHING, LaunchState.SERVING)
_ORDER = {phase.value: index for index, phase in enumerate(Phase)}


class Process(msgspec.Struct, frozen=True, kw_only=True):
    """One process of the gang."""

    source: str
    pid: int
    rank: int | None
    exited: Exit | None = None
    expected: bool = False
    """Its end, where it has ended, was asked for or is its duty."""
    signalled: bool = False
    """We sent it a signal while it was alive."""
    title: str = ""
    """What it calls itself."""
    tool: bool = False
    """Something that a member runs, such as a compiler: its end says nothing."""

    @property
    def name(self) -> str:
        """Its title where it has one, such as `EngineCore`, else its source."""
        return self.title.rpartition("::")[2] or self.source

    @property
    def label(self) -> str:
        """How people call it: `rank 3`, `frontend`."""
        return self.name if self.rank is None else f"rank {self.rank}"


class Run(msgspec.Struct, frozen=True, kw_only=True):
    """A launch as its events tell it; `t` is seconds since launch."""

    state: LaunchState = LaunchState.LAUNCHING
    processes: dict[int, Process] = {}
    """By pid, in the order in which they came."""
    deaths: tuple[int, ...] = ()
    """The pids of those that ended, in that order."""
    phases: dict[int, tuple[PhaseEvent, ...]] = {}
    """What each rank went through."""
    ready_t: float | None = None
    ended_t: float | None = None
    failing: Gang | None = None
    refused: Gang | None = None
    helper_died: Gang | None = None
    memory: dict[int, dict[str, int]] = {}
    """What each rank has taken, by category."""
    left: tuple[int, ...] = ()
    """Processes that could not be ended."""

    @property
    def live(self) -> bool:
        """Whether processes of the gang may exist."""
        return self.ended_t is None

    @property
    def unexpected(self) -> tuple[Process, ...]:
        """The processes whose end nobody asked for, in the order of their deaths."""
        dead = (self.processes[pid] for pid in self.deaths)
        return tuple(process for process in dead if not process.expected)

    def phase(self, rank: int) -> str:
        """Return the phase that a rank entered last."""
        entered = self.phases.get(rank)
        return entered[-1].phase if entered else Phase.SPAWN


def reduce(run: Run, event: Event) -> Run:
    """Return the state after `event`."""
    match event:
        case Spawn():
            tool = event.ppid in run.processes
            process = Process(source=event.source, pid=event.pid, rank=event.rank, tool=tool)
            return _with_process(run, process)
        case Title(pid=pid) if pid in run.processes:
            process = run.processes[pid]
            rank = process.rank if event.rank is None else event.rank
            process = msgspec.structs.replace(process, title=event.title, rank=rank, tool=False)
            return _with_process(run, process)
        case Signal(pid=pid) if pid in run.processes and pid not in run.deaths:
            process = msgspec.structs.replace(run.processes[pid], signalled=True)
            return _with_process(run, process)
        case Exit(pid=pid) if pid in run.processes and pid not in run.deaths:
            return _exited(run, run.processes[pid], event)
        case PhaseEvent(rank=rank):
            entered = (*run.phases.get(rank, ()), event)
            return msgspec.structs.replace(run, phases={**run.phases, rank: entered})
        case MemoryTaken(rank=rank):
            taken = run.memory.get(rank, {}) | event.measured
            return msgspec.structs.replace(run, memory={**run.memory, rank: taken})
        case Health(endpoint=endpoint, code=200) if endpoint in _READY_ENDPOINTS:
            if run.state is LaunchState.LAUNCHING:
                return msgspec.structs.replace(run, state=LaunchState.SERVING, ready_t=event.t)
        case Operator(action=action) if action in _STOPS:
            return _stopping(run)
        case Gang():
            return _gang(run, event)
    return run


def reduce_all(run: Run, events: Iterable[Event]) -> Run:
    """Return the state after all of `events`."""
    for event in events:
        run = reduce(run, event)
    return run


def phase_seconds(run: Run) -> dict[str, float]:
    """Return for each phase before `ready` the seconds of the rank that took longest in it."""
    longest: dict[str, float] = {}
    for entered in run.phases.values():
        for event, following in pairwise(entered):
            if phase_index(event.phase) < _ORDER[Phase.READY]:
                seconds = round(following.t - event.t, 3)
                longest[event.phase] = max(seconds, longest.get(event.phase, 0.0))
    return longest


def start_seconds(run: Run) -> dict[str, float]:
    """Return where the seconds from launch to ready went, in order.

    `processes`: until the first rank spoke; then the phases, each that of the rank that took
    longest; `answering`: from the last rank's being ready to the API's.
    """
    if not run.phases:
        return {}
    first = min(entered[0].t for entered in run.phases.values())
    seconds = {"processes": round(first, 3), **phase_seconds(run)}
    serving = [
        event.t
        for entered in run.phases.values()
        for event in entered
        if event.phase == Phase.SERVING
    ]
    if run.ready_t is not None and serving:
        seconds["answering"] = round(max(run.ready_t - max(serving), 0.0), 3)
    return seconds


def phase_index(phase: str) -> int:
    """Return the place of a phase in the order in which they come; 0 for one not known."""
    return _ORDER.get(phase, 0)


def _with_process(run: Run, process: Process) -> Run:
    return msgspec.structs.replace(run, processes={**run.processes, process.pid: process})


def _exited(run: Run, process: Process, event: Exit) -> Run:
    # The spawner ends once it has forked: that is its duty.
    done = process.source == "spawner" and event.code == 0
    expected = done or process.tool or process.signalled or run.state is LaunchState.STOPPING
    process = msgspec.structs.replace(process, exited=event, expected=expected)
    return msgspec.structs.replace(_with_process(run, process), deaths=(*run.deaths, process.pid))


def _gang(run: Run, event: Gang) -> Run:
    replace = msgspec.structs.replace
    if not run.live:
        return run
    match event.state:
        case "failing" if run.state in _SOUND:
            return replace(run, state=LaunchState.FAILING, failing=event)
        case "refused":
            return replace(run, state=LaunchState.FAILING, refused=event)
        case "stopping":
            return _stopping(run)
        case "down":
            return replace(run, state=_end(run), ended_t=event.t, left=event.alive)
        case "helper_died":
            return replace(
                run,
                state=LaunchState.LOST,
                ended_t=event.t,
                helper_died=event,
                left=event.alive,
            )
    return run


def _stopping(run: Run) -> Run:
    # Who stops a gang that is failing already does not make a crash undone.
    if run.state in _SOUND:
        return msgspec.structs.replace(run, state=LaunchState.STOPPING)
    return run


def _end(run: Run) -> LaunchState:
    if run.refused:
        return LaunchState.REFUSED
    return LaunchState.STOPPED if run.state is LaunchState.STOPPING else LaunchState.CRASHED
