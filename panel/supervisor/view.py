"""A launch → what panels show of it. Pure."""

from __future__ import annotations

from collections.abc import Mapping

from panel.domain.exits import exit_words
from panel.domain.hang import Suspicion
from panel.domain.nodes import own_pid
from panel.domain.phases import Phase
from panel.domain.run import Process, Run, phase_index, start_seconds
from panel.domain.snapshot import LaunchView, ProcessExit, ProcessView
from panel.domain.states import LaunchState, ProcessState
from panel.engines.base import Progress
from panel.planning.measured import measured
from panel.supervisor.launch import Launch
from panel.supervisor.watch.processes import Usage

STALE_S = 5.0
"""A living rank whose last beat is older is stale."""
_OTHERS: dict[LaunchState, Phase] = {
    LaunchState.LAUNCHING: Phase.SPAWN,
    LaunchState.SERVING: Phase.SERVING,
    LaunchState.STOPPING: Phase.DRAINING,
    LaunchState.FAILING: Phase.DRAINING,
}
"""Phase of the processes that report none."""


def view_launch(launch: Launch, suspicion: Suspicion | None = None) -> LaunchView:
    """Return the launch at this moment; `suspicion`: why it is taken to be hanging."""
    run, spec = launch.run, launch.spec
    # Until its keeper is gone too, the next launch has to wait.
    state = launch.state if run.live or not launch.live else LaunchState.STOPPING
    late = launch.late.shares(launch.t)
    processes = tuple(_view_process(launch, process, late) for process in _shown(run))
    behind = [each.phase for each in processes if each.rank is not None and each.exit is None]
    return LaunchView(
        id=spec.id,
        uuid=spec.uuid,
        request=spec.plan.request,
        engine=spec.engine,
        version=spec.version,
        state=state,
        world_size=spec.world_size,
        t0_unix=spec.t0_unix,
        t=round(launch.t, 3),
        url=spec.url,
        chips=spec.plan.chips,
        flags=spec.plan.values(),
        phase=min(behind, key=phase_index, default=Phase.SPAWN) if run.live else Phase.STOPPED,
        ready_s=None if run.ready_t is None else round(run.ready_t, 3),
        start=start_seconds(run),
        usual_ready_s=launch.usual_ready_s,
        processes=processes,
        metrics=launch.metrics.metrics(),
        memory=measured(spec.plan.memory, spec.plan.fit, run.memory),
        folder=str(launch.folder.path),
        log_sizes=dict(launch.logs.sizes),
        verdict=launch.verdict,
        suspicion=suspicion,
        held=launch.held,
        note=launch.note,
    )


def _shown(run: Run) -> list[Process]:
    """Return the ranks in order, then the others that matter: no tools, nor a spawner that did its
    duty."""
    shown = [
        process
        for process in run.processes.values()
        if not process.tool and (process.source != "spawner" or process in run.unexpected)
    ]
    return sorted(shown, key=lambda each: (each.rank is None, each.rank or 0))


def _view_process(launch: Launch, process: Process, late: Mapping[int, float]) -> ProcessView:
    run, nodes = launch.run, launch.spec.plan.nodes
    beat = _beat(launch, process)
    usage = launch.samples.usage.get(process.pid, Usage(0.0, 0, 0))
    if process.rank is None:
        phase = str(_OTHERS.get(run.state, Phase.STOPPED))
    else:
        phase = beat.phase if beat else run.phase(process.rank)
    age = beat.age if beat and process.exited is None else None
    said = launch.logs.last_lines.get(process.source, "")
    return ProcessView(
        source=process.source,
        pid=own_pid(process.pid) if nodes else process.pid,
        node=process.source if nodes else "",
        state=_state(launch, process, phase, beat),
        rank=process.rank,
        title=process.title,
        phase=phase,
        done=beat.done if beat else 0,
        total=beat.total if beat else 0,
        detail=beat.detail if beat else 0,
        step=beat.step if beat else 0,
        beat_age=None if age is None else round(age, 1),
        cpu=usage.cpu,
        rss=usage.rss,
        threads=usage.threads,
        last_line=(beat.said if beat else "") or said,
        exit=_exit(launch, process),
        stopped=process.pid in launch.stopped,
        late=round(late.get(-1 if process.rank is None else process.rank, 0.0), 3),
    )


def _beat(launch: Launch, process: Process) -> Progress | None:
    beats = launch.samples.beats
    rank = process.rank
    return None if rank is None or rank >= len(beats) else beats[rank]


def _state(launch: Launch, process: Process, phase: str, beat: Progress | None) -> ProcessState:
    if process.exited is not None:
        return ProcessState.STOPPED if process.expected else ProcessState.FAILED
    if process.pid in launch.stopped or (beat and beat.age is not None and beat.age > STALE_S):
        return ProcessState.STALE
    return ProcessState.SERVING if phase == Phase.SERVING else ProcessState.BUSY


def _exit(launch: Launch, process: Process) -> ProcessExit | None:
    if process.exited is None:
        return None
    code = process.exited.code
    words = exit_words(code, dict(launch.engine.exit_words))
    if process.expected and code is not None and code < 0:
        # Who asked for the end is known: no guess at another killer.
        words = words.partition(",")[0]
    return ProcessExit(t=process.exited.t, code=code, words=words)
