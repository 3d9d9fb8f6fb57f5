"""Suspects hangs of one launch, climbs the ladder, and keeps the survivors' stacks at a death."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import time
from collections.abc import Coroutine, Iterator, Mapping, Sequence
from typing import Any

from panel.domain.errors import UsageError
from panel.domain.hang import HangView, Step, Suspicion, stopped_words
from panel.domain.states import LaunchState
from panel.domain.verdict import Evidence
from panel.probes.hang import core
from panel.probes.hang.ladder import Means, Outcome, next_rung, plan
from panel.probes.hang.suspect import Pulse, suspect, suspect_stall
from panel.supervisor import hang_steps
from panel.supervisor.launch import Launch
from panel.supervisor.probes import Probes
from panel.supervisor.stacks import refused, take_stacks

log = logging.getLogger(__name__)

AT_DEATH_S = 1.5
"""The keeper leaves the survivors two seconds."""
_WATCHED = (LaunchState.LAUNCHING, LaunchState.SERVING)


class Hangs:
    """Belongs to the event loop; its steps run beside the ticks."""

    def __init__(self, launch: Launch, probes: Probes) -> None:
        self.suspicion: Suspicion | None = None
        self._launch = launch
        self._probes = probes
        self._done: dict[Step, Outcome] = {}
        self._tasks: set[asyncio.Task[Any]] = set()

    def tick(self) -> None:
        """Look at the beats; a new suspicion sends the automatic steps on their way."""
        launch = self._launch
        found = _suspicion(launch) if launch.run.state in _WATCHED else None
        if found is not None and self.suspicion is None:
            log.warning("launch %d may hang: %s", launch.spec.id, found.text)
            self._done.clear()
            launch.found = ()
            self._probes.record_gpus(launch)
            self._start(self._climb())
        self.suspicion = found
        if launch.run.state in _WATCHED:
            launch.suspicion = found

    def first_death(self) -> None:
        """Take the survivors' stacks and the GPUs as they are, while they are."""
        self._probes.record_gpus(self._launch)
        self._start(take_stacks(self._launch, "death", seconds=AT_DEATH_S))

    def view(self) -> HangView:
        """Return the ladder as it stands."""
        return HangView(
            launch=self._launch.spec.id,
            suspicion=self.suspicion,
            rungs=plan(self._means(), self._done),
        )

    async def step(self, step: Step) -> HangView:
        """Do one step now. Raises `UsageError` where it cannot be done here."""
        rung = next((each for each in self.view().rungs if each.step == step), None)
        if rung is None or rung.refused:
            raise UsageError(f"{step} is not possible: {rung.refused if rung else 'no such step'}")
        await self._do(step)
        return self.view()

    async def close(self) -> None:
        """Stop what is under way."""
        for task in tuple(self._tasks):
            task.cancel()
            with contextlib.suppress(asyncio.CancelledError):
                await task

    async def _climb(self) -> None:
        while (rung := next_rung(self.view().rungs, automatic=True)) is not None:
            await self._do(rung.step)

    async def _do(self, step: Step) -> None:
        launch = self._launch
        match step:
            case "look":
                gpus = self._probes.gpus(launch)
                outcome = await hang_steps.look(launch, self.suspicion, gpus)
            case "ras":
                outcome = await hang_steps.ask_nccl(launch)
            case "stacks":
                outcome = await hang_steps.stacks(launch)
            case "flight":
                outcome = await hang_steps.flight_recorder(launch)
            case "core":
                outcome = await hang_steps.cuda_core(launch, self.suspicion)
        log.info("launch %d, %s: %s", launch.spec.id, step, outcome.result)
        self._done[step] = outcome
        self._launch.found = tuple(evidence(self._done))

    def _means(self) -> Means:
        launch = self._launch
        if not launch.live:
            over = "the launch is over"
            return Means(over, over, over, over)
        on_gpus = any(gpu.rank is not None for gpu in self._probes.gpus(launch))
        recorder = any(launch.folder.flight.glob("*.pipe"))
        return Means(
            ras="" if on_gpus else "the ranks use no GPU, so no NCCL",
            stacks=refused(launch),
            flight="" if recorder else "no rank has a flight recorder",
            core=core.trouble(launch.spec.env, hang_steps.living(launch))
            if on_gpus
            else "the ranks use no GPU, so no CUDA kernels",
        )

    def _start(self, work: Coroutine[Any, Any, Any]) -> None:
        task = asyncio.create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._ended)

    def _ended(self, task: asyncio.Task[Any]) -> None:
        self._tasks.discard(task)
        if not task.cancelled() and (error := task.exception()) is not None:
            log.error("looking at launch %d failed", self._launch.spec.id, exc_info=error)


def evidence(done: Mapping[Step, Outcome]) -> Iterator[Evidence]:
    """Yield what the steps found, as evidence of a verdict: by the file each of them left."""
    for step, outcome in done.items():
        source = outcome.file or f"hang/{step}"
        yield Evidence(source=source, offset=0, line=1, text=outcome.result)


def _suspicion(launch: Launch) -> Suspicion | None:
    """Return why it is taken to be hanging: by its beats, else by its figures."""
    if pulses := _pulses(launch):
        return name_stopped(suspect(pulses, launch.t), _stopped(launch))
    ranks = sorted(each.rank for each in launch.run.processes.values() if each.rank is not None)
    return suspect_stall(launch.metrics.stalled(time.monotonic()), ranks, launch.t)


def name_stopped(found: Suspicion | None, stopped: Sequence[int]) -> Suspicion | None:
    """Return a suspicion with the ranks that a signal stopped: for those the others wait."""
    if found is None or not stopped:
        return found
    text = f"{stopped_words(stopped)}; {found.text}"
    return Suspicion(since=found.since, ranks=tuple(stopped), text=text)


def _stopped(launch: Launch) -> list[int]:
    processes = launch.run.processes
    ranks = (processes[pid].rank for pid in launch.stopped if pid in processes)
    return sorted(rank for rank in ranks if rank is not None)


def _pulses(launch: Launch) -> list[Pulse]:
    """Return the beats of the ranks that live."""
    living = {
        process.rank
        for process in launch.run.processes.values()
        if process.rank is not None and process.exited is None
    }
    return [
        Pulse(rank, beat.phase, beat.age)
        for rank, beat in enumerate(launch.samples.beats)
        if beat is not None and beat.age is not None and rank in living
    ]
