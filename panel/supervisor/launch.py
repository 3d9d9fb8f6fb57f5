"""One launch as the supervisor sees it: its files, its keeper, the last samples, its verdict."""

from __future__ import annotations

import time
from collections.abc import Sequence
from typing import NamedTuple

import msgspec

from panel.domain.events import Alarm, Event, MemoryTaken, PhaseEvent, State
from panel.domain.events import Gpu as GpuEvent
from panel.domain.gpu import Gpu
from panel.domain.hang import Suspicion
from panel.domain.nodes import with_nodes
from panel.domain.run import Run, phase_seconds, reduce_all
from panel.domain.states import LaunchState
from panel.domain.verdict import Evidence, Verdict
from panel.domain.wire import LaunchRecord
from panel.engines.base import Engine, Progress, Pulse
from panel.probes.hang.look import Standing
from panel.probes.series import History
from panel.supervisor import procfs
from panel.supervisor.evidence import (
    EventReader,
    Folder,
    LaunchSpec,
    append_event,
    read_json,
    write_json,
)
from panel.supervisor.fleet.looks import LOOKS, Look
from panel.supervisor.judge import Judge
from panel.supervisor.keepers import Keeper
from panel.supervisor.watch.late import LateRanks
from panel.supervisor.watch.logs import LogSampler
from panel.supervisor.watch.metrics import MetricsHistory
from panel.supervisor.watch.processes import ProcessSampler, Usage
from panel.triage.triage import hung_before, revise


class Samples(NamedTuple):
    """What was last seen."""

    usage: dict[int, Usage]
    beats: tuple[Progress | None, ...]
    elsewhere: tuple[Gpu, ...] = ()
    """The ranks' GPUs, in a launch over several nodes."""


class Launch:
    """A launch that runs, or the last one. The only place where its state changes."""

    def __init__(
        self,
        spec: LaunchSpec,
        folder: Folder,
        engine: Engine,
        keeper: Keeper | None,
        *,
        usual_ready_s: float | None = None,
        note: str = "",
    ) -> None:
        self.spec = spec
        self.folder = folder
        self.engine = engine
        self.keeper = keeper
        self.usual_ready_s = usual_ready_s
        self.note = note
        self.run = Run()
        self.checking = keeper is not None and spec.outside
        """Whether its GPUs are still to be looked at before it counts as gone."""
        self.held: tuple[str, ...] = ()
        """What it still holds after its end, a sentence a GPU."""
        self.samples = Samples({}, ())
        self.first_gpus: dict[int, GpuEvent] = {}
        """What the evidence says first of each GPU, by index."""
        self.logs = LogSampler(folder, spec.sources)
        self.metrics = MetricsHistory(engine.metric_names)
        self.history = History(folder.series)
        self.verdict: Verdict | None = None
        self.suspicion: Suspicion | None = None
        """Why it is taken to be hanging, or was when it was stopped."""
        self.found: tuple[Evidence, ...] = ()
        """What the steps of looking at a hang found."""
        self._judge = Judge(folder, spec, engine)
        self._events = EventReader(folder)
        self._processes = ProcessSampler()
        self.late = LateRanks()
        self._stopped: set[int] = set()
        self._pulse: Pulse | None = None

    @property
    def live(self) -> bool:
        """Whether anything of it may exist, the keeper included."""
        return self.run.live or self.keeper is not None or self.checking

    @property
    def state(self) -> LaunchState:
        """How it fares. What ended before any rank existed, for its flags or its port, counts as
        refused, also where the engine's own parser said so; not what died importing."""
        if self.verdict is None or self.run.state not in (LaunchState.CRASHED, LaunchState.REFUSED):
            return self.run.state
        refused = self.verdict.status == "refused"
        return LaunchState.REFUSED if refused else LaunchState.CRASHED

    @property
    def t(self) -> float:
        """Seconds since launch; stands still once the gang is down."""
        if self.run.ended_t is not None:
            return self.run.ended_t
        return (time.monotonic_ns() - self.spec.t0_mono_ns) / 1e9

    @property
    def address(self) -> tuple[str, int]:
        """Host and port that its API binds."""
        return self.engine.address(self.spec.plan.values())

    def read_events(self) -> None:
        """Take in what was appended to the events."""
        self._take(self._events.read())

    def record_event(self, event: Event) -> None:
        """Append an event of our own; on a full disk it counts all the same."""
        try:
            append_event(self.folder, event)
        except OSError:
            self._take([event])
        self.read_events()

    def sample(self) -> None:
        """Look at heartbeats and logs."""
        if self._pulse is None and self.run.live:
            self._pulse = self.engine.pulse(self.folder.path, self.spec.world_size)
        if self._pulse is not None:
            self.samples = self.samples._replace(beats=self._pulse.read())
            self._note_phases()
            self._note_memory(self._pulse)
        self.logs.sample()

    def sample_processes(self) -> None:
        """Look at the processes themselves; those of several nodes are looked at there."""
        if self.spec.plan.nodes:
            look = read_json(self.folder.path / LOOKS, Look) or Look()
            self.samples = self.samples._replace(usage=look.usage, elsewhere=look.gpus)
            self._stopped = set(look.stopped)
            return
        alive = [pid for pid in self.run.processes if pid not in self.run.deaths]
        self.samples = self.samples._replace(usage=self._processes.sample(alive, time.monotonic()))
        for pid in alive:
            stopped = procfs.state(pid) == "T"
            if stopped is not (pid in self._stopped):
                self._stopped ^= {pid}
                self.record_event(State(t=round(self.t, 6), pid=pid, state="T" if stopped else "R"))

    @property
    def stopped(self) -> frozenset[int]:
        """The pids of the living processes that a signal stopped."""
        return frozenset(pid for pid in self._stopped if pid not in self.run.deaths)

    def look_for_late(self) -> None:
        """Note for whom the others wait."""
        if self.run.state is not LaunchState.SERVING:
            return
        metrics = self.metrics.metrics()
        standings = [
            Standing(rank, beat.meetings, beat.waiting)
            for rank, beat in enumerate(self.samples.beats)
            if beat is not None and beat.meetings
        ]
        self.late.look(self.t, standings, idle=metrics is None or not metrics.running)

    def judge(self) -> None:
        """Bring the verdict up to date and into its file, where something has happened."""
        now = self._judge.verdict(self.t, self._beats(), not self.run.live)
        if now is not None:
            now = with_nodes(now, self.spec.world_size, self.spec.plan.nodes)
            now = self._with_hang(now)
        # A launch in good health needs none; one that is being stopped gets its when it is down.
        well = now and now.status == "running" and not now.troubled and not self.stopped
        early = well or (now and now.status == "stopped" and self.run.live)
        if now is None or (early and self.verdict is None):
            return
        verdict = revise(self.verdict, now)
        if verdict is None:
            return
        self.verdict = verdict
        try:
            write_json(self.folder.verdict, verdict)
        except OSError:
            self.note = "the disk is full: the verdict is not in its file"

    def settle(self) -> None:
        """Look a last time, and let go of what the processes had."""
        self.sample()
        self.samples = self.samples._replace(usage={}, elsewhere=())
        if self._pulse is not None:
            self._pulse.close()
            self._pulse = None

    def record(self) -> LaunchRecord:
        """Return the row of the ledger."""
        plan = self.spec.plan
        ended = self.run.ended_t
        return LaunchRecord(
            id=self.spec.id,
            uuid=self.spec.uuid,
            request=plan.request,
            engine=self.spec.engine,
            version=self.spec.version,
            state=self.state,
            t0_unix=self.spec.t0_unix,
            ended_unix=None if ended is None else round(self.spec.t0_unix + ended, 3),
            ready_s=None if self.run.ready_t is None else round(self.run.ready_t, 3),
            flags=plan.values(),
            phases=phase_seconds(self.run),
            outcome=self.verdict.told if self.verdict else "",
            tok_s=self.metrics.best,
            versions=self.spec.versions,
            env=self.spec.env,
        )

    def _with_hang(self, now: Verdict) -> Verdict:
        if now.status == "hung":
            return msgspec.structs.replace(now, evidence=now.evidence + self.found)
        if now.status == "stopped":
            return msgspec.structs.replace(now, note=hung_before(self.verdict, self.suspicion))
        return now

    def _note_phases(self) -> None:
        """Note what the log alone tells; ranks with a heartbeat note their phases themselves."""
        for rank, beat in enumerate(self.samples.beats):
            if beat is not None and beat.age is None and beat.phase != self.run.phase(rank):
                self.record_event(PhaseEvent(t=round(self.t, 6), rank=rank, phase=beat.phase))

    def _note_memory(self, pulse: Pulse) -> None:
        """Note what the log alone tells; our own ranks note theirs themselves."""
        for rank, taken in pulse.memory().items():
            if not taken.items() <= self.run.memory.get(rank, {}).items():
                self.record_event(MemoryTaken(t=round(self.t, 6), rank=rank, measured=dict(taken)))

    def _take(self, events: Sequence[Event]) -> None:
        self.run = reduce_all(self.run, events)
        self._judge.see(events)
        for event in events:
            if isinstance(event, Alarm):
                self.note = event.text
            elif isinstance(event, GpuEvent):
                self.first_gpus.setdefault(event.index, event)

    def _beats(self) -> tuple[Progress | None, ...]:
        """Return the heartbeats of the ranks that live: that of a dead one only grows older."""
        living = {each.rank for each in self.run.processes.values() if each.exited is None}
        return tuple(
            beat if rank in living else None for rank, beat in enumerate(self.samples.beats)
        )
