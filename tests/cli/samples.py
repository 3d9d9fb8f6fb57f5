"""Snapshots as a supervisor would send them."""

from __future__ import annotations

import msgspec

from panel.domain.flags import Request
from panel.domain.snapshot import (
    Host,
    LaunchView,
    Metrics,
    ProcessExit,
    ProcessView,
    Snapshot,
    Supervisor,
)
from panel.domain.states import LaunchState, ProcessState
from panel.domain.verdict import Evidence, Verdict

REQUEST = Request(profile="tiny", set={"ep-size": "8"})
URL = "http://127.0.0.1:30000"


def rank(number: int, phase: str = "serving", **changes: object) -> ProcessView:
    """A rank of the gang."""
    view = ProcessView(
        source=f"rank-{number}",
        pid=4000 + number,
        state=ProcessState.SERVING if phase == "serving" else ProcessState.BUSY,
        rank=number,
        phase=phase,
        beat_age=0.1,
        cpu=98.0,
        rss=312 << 20,
        last_line="Decode batch, 4 running",
    )
    return msgspec.structs.replace(view, **changes)


def launch(
    state: LaunchState = LaunchState.SERVING, number: int = 17, **changes: object
) -> LaunchView:
    """A launch of eight ranks and the front end."""
    phase = "serving" if state is LaunchState.SERVING else "capture"
    serving = state is LaunchState.SERVING
    view = LaunchView(
        id=number,
        uuid="0" * 32,
        request=REQUEST,
        engine="builtin",
        version="0.1.0",
        state=state,
        world_size=8,
        t0_unix=1_790_000_000.0,
        t=751.0,
        url=URL,
        chips=("tp8", "ep8"),
        flags={"ep-size": "8"},
        phase=phase,
        ready_s=4.1 if serving else None,
        processes=(
            *(rank(number, phase) for number in range(8)),
            ProcessView(source="frontend", pid=4100, state=ProcessState.SERVING),
        ),
        metrics=Metrics(tok_s=412.4, running=4, kv_used=31, kv_total=100, acceptance=2.6)
        if serving
        else None,
    )
    return msgspec.structs.replace(view, **changes)


def crashed(number: int = 17, *, final: bool = True) -> LaunchView:
    """A launch whose rank 3 was killed in graph capture."""
    gone = ProcessExit(t=3.25, code=-9, words="killed by SIGKILL")
    dead = rank(3, "capture", state=ProcessState.FAILED, exit=gone)
    view = launch(LaunchState.CRASHED, number)
    return msgspec.structs.replace(
        view,
        processes=(*view.processes[:3], dead, *view.processes[4:]),
        verdict=Verdict(
            status="crashed",
            headline="rank 3 failed first: killed by SIGKILL in capture",
            final=final,
            root_ranks=(3,),
            phase="capture",
            evidence=(
                Evidence(source="rank-3", offset=0, line=1, text="RuntimeError: no such bucket"),
            ),
        ),
    )


def snapshot(view: LaunchView | None = None, pid: int = 1) -> Snapshot:
    """What the supervisor shows."""
    return Snapshot(
        seq=1,
        supervisor=Supervisor(
            pid=pid, version="0.1.0", started_unix=0.0, home="/home", socket="/home/s"
        ),
        host=Host(
            name="gpu-a",
            cpus=2,
            load=0.5,
            memory_total=8 << 30,
            memory_available=4 << 30,
            gpu_note="no driver",
        ),
        launch=view,
    )
