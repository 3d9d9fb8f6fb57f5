"""Finds a launch again: after a restart of the supervisor, or to show what the last one did."""

from __future__ import annotations

from collections.abc import Callable

from panel.config.home import Home
from panel.domain.events import Gang
from panel.domain.wire import LaunchRecord
from panel.engines.base import Engine
from panel.supervisor import procfs
from panel.supervisor.evidence import Folder, KeeperId, LaunchSpec, read_json, verdict_of
from panel.supervisor.keepers import find_keeper
from panel.supervisor.launch import Launch

ADOPTED = "adopted after a restart of the supervisor"


def load_launch(
    home: Home,
    record: LaunchRecord,
    find_engine: Callable[[str], Engine],
    usual_ready_s: float | None,
) -> Launch | None:
    """Return the launch of a row of the ledger with all that its events tell.

    None where its folder is gone. It is live where the row says that it was and its keeper still
    is; where the host was restarted meanwhile its events say so from now on.
    """
    folder = Folder(home.launch(record.id))
    spec = read_json(folder.launch, LaunchSpec)
    if spec is None:
        return None
    keeper = find_keeper(read_json(folder.keeper, KeeperId)) if record.state.live else None
    launch = Launch(
        spec,
        folder,
        find_engine(spec.engine),
        keeper,
        usual_ready_s=usual_ready_s,
        note=ADOPTED if keeper else "",
    )
    launch.read_events()
    launch.sample()
    launch.verdict = verdict_of(folder)
    launch.metrics.recall(record.tok_s)
    if launch.run.live and spec.boot_id != procfs.boot_id():
        reason = "the host was restarted while this launch ran"
        launch.record_event(Gang(t=last_t(launch), state="helper_died", reason=reason))
    return launch


def last_t(launch: Launch) -> float:
    """Return the moment of the last event: the clock of another boot says nothing."""
    run = launch.run
    deaths = [process.exited.t for process in run.processes.values() if process.exited]
    phases = [entered[-1].t for entered in run.phases.values()]
    return max([run.ready_t or 0.0, *deaths, *phases])
