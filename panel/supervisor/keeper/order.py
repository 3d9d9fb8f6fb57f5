"""The order: the one line by which the supervisor says what to run and how."""

from __future__ import annotations

import json
from typing import Any, NamedTuple


class OrderError(ValueError):
    """The line is no order; the message says why."""


class Policy(NamedTuple):
    """How a gang ends."""

    evidence_s: float
    """From the first unexpected death to TERM: time for the survivors' last words."""
    grace_s: float
    """From TERM to KILL."""


class SpawnerOrder(NamedTuple):
    """What the warm spawner is to become."""

    argv: list[str]
    logs: dict[str, str]
    """Path by source."""


class ProcessOrder(NamedTuple):
    """A process that the keeper starts itself: the launcher of another engine."""

    source: str
    argv: list[str]
    cwd: str | None
    log: str
    world_size: int
    """Ranks among what it starts."""
    stop: list[str]
    """What ends the processes that `pids` prints; both empty where all are descendants."""
    pids: list[str]


class Order(NamedTuple):
    """One launch."""

    folder: str
    uuid: str
    t0_mono_ns: int
    env: dict[str, str]
    spawner: SpawnerOrder | None
    processes: tuple[ProcessOrder, ...]
    policy: Policy

    @property
    def logs(self) -> dict[str, str]:
        """Path of the log by source."""
        logs = dict(self.spawner.logs) if self.spawner else {}
        return logs | {process.source: process.log for process in self.processes}


def read_order(line: bytes) -> Order:
    """Return the order in `line`. Raises OrderError."""
    try:
        data = json.loads(line)
        spawner = data["spawner"]
        order = Order(
            folder=str(data["folder"]),
            uuid=str(data["uuid"]),
            t0_mono_ns=int(data["t0_mono_ns"]),
            env=_texts(data["env"]),
            spawner=SpawnerOrder(list(map(str, spawner["argv"])), _texts(spawner["logs"]))
            if spawner
            else None,
            processes=tuple(map(_process, data["processes"])),
            policy=Policy(float(data["policy"]["evidence_s"]), float(data["policy"]["grace_s"])),
        )
    except KeyError as error:
        raise OrderError(f"it has no {error}") from error
    except (AttributeError, TypeError, ValueError) as error:
        raise OrderError(str(error)) from error
    if not order.spawner and not order.processes:
        raise OrderError("it names nothing to run")
    return order


def _process(data: Any) -> ProcessOrder:
    cwd = data["cwd"]
    return ProcessOrder(
        source=str(data["source"]),
        argv=list(map(str, data["argv"])),
        cwd=None if cwd is None else str(cwd),
        log=str(data["log"]),
        world_size=int(data["world_size"]),
        stop=list(map(str, data["stop"])),
        pids=list(map(str, data["pids"])),
    )


def _texts(data: Any) -> dict[str, str]:
    return {str(name): str(value) for name, value in data.items()}
