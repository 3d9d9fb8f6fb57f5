"""Stacks of a launch's processes, taken on a thread and kept in its evidence."""

from __future__ import annotations

import asyncio

import msgspec

from panel.domain.stacks import Stacks
from panel.probes.stacks import right
from panel.probes.stacks.pyspy import Target
from panel.probes.stacks.take import take
from panel.supervisor.evidence import write_json
from panel.supervisor.launch import Launch

OWN_ENGINE = "builtin"
_SPAWNER = "spawner"


def targets(launch: Launch) -> list[Target]:
    """Return the living processes of a launch, ranks first."""
    living = [
        Target(process.name, process.pid, process.rank)
        for process in launch.run.processes.values()
        if process.exited is None and process.source != _SPAWNER and not process.tool
    ]
    return sorted(living, key=lambda each: (each.rank is None, each.rank or 0))


def refused(launch: Launch) -> str:
    """Return why the stacks of a launch cannot be taken; empty where they can."""
    found = targets(launch)
    return right.trouble(found[0].pid) if found else "no process of it is alive"


async def take_stacks(
    launch: Launch, reason: str, *, native: bool = False, seconds: float = 5.0
) -> Stacks:
    """Take them now and save them; on a full disk they are only returned."""
    own = launch.spec.engine == OWN_ENGINE
    found = await asyncio.to_thread(
        take,
        targets(launch),
        t=launch.t,
        reason=reason,
        native=native,
        seconds=seconds,
        log_of=launch.folder.log if own else None,
    )
    name = f"stacks/{found.t:010.3f}-{reason}.json"
    saved = msgspec.structs.replace(found, file=name)
    path = launch.folder.path / name
    try:
        path.parent.mkdir(mode=0o700, exist_ok=True)
        write_json(path, saved)
    except OSError:
        return found
    return saved
