"""Lines of `events.jsonl`: what happened to a launch, in the order in which it was noted.

`t` is seconds since launch. Keeper, supervisor and ranks append to one file, one write a line.
"""

from __future__ import annotations

from typing import Literal

import msgspec


class _Event(msgspec.Struct, frozen=True, kw_only=True, tag_field="kind", omit_defaults=True):
    t: float


class Spawn(_Event, frozen=True, tag="spawn"):
    """A process of the gang exists."""

    source: str
    pid: int
    ppid: int | None = None
    start_ticks: int | None = None
    rank: int | None = None
    command: str | None = None


class Exit(_Event, frozen=True, tag="exit"):
    """A process ended. Negative codes are signals; None is not known."""

    pid: int
    code: int | None = None


class Signal(_Event, frozen=True, tag="signal"):
    """We sent a signal."""

    pid: int
    sig: int
    by: str


class Operator(_Event, frozen=True, tag="operator"):
    """Somebody asked for something: up, relaunch, down, down_now, shutdown."""

    action: str


class PhaseEvent(_Event, frozen=True, tag="phase"):
    """A rank entered a phase."""

    rank: int
    phase: str


class Health(_Event, frozen=True, tag="health"):
    """A health probe changed its answer. Code 0: the connection was refused."""

    endpoint: str
    code: int
    ms: float


class Title(_Event, frozen=True, tag="title"):
    """A process named itself."""

    pid: int
    title: str
    rank: int | None = None


class State(_Event, frozen=True, tag="state"):
    """A process changed its state: R, S, D, T (stopped), Z."""

    pid: int
    state: str


class Kernel(_Event, frozen=True, tag="kernel"):
    """A line of the kernel log."""

    text: str
    rank: int | None = None
    """Whose process, GPU or PCIe port it names, where that was known at once."""


class Gpu(_Event, frozen=True, tag="gpu"):
    """A sample of a GPU; memory is bytes."""

    index: int
    bus_id: str | None = None
    rank: int | None = None
    util: float | None = None
    mem_used: int | None = None
    power: float | None = None
    xid: int | None = None
    processes: tuple[tuple[int, int], ...] | None = None
    """(pid, bytes) of those that hold memory of it."""


class Gang(_Event, frozen=True, tag="gang"):
    """The keeper's view of the whole: up, failing, stopping, down, refused, helper_died."""

    state: Literal["up", "failing", "stopping", "down", "refused", "helper_died"]
    reason: str = ""
    code: int | None = None
    """With `refused`: the exit code of the spawner."""
    alive: tuple[int, ...] = ()
    """With `down`: processes of the gang that could not be ended."""


class MemoryTaken(_Event, frozen=True, tag="memory"):
    """What a rank has taken, in bytes by category; `kv_tokens` is a number."""

    rank: int
    measured: dict[str, int] = {}


class Alarm(_Event, frozen=True, tag="alarm"):
    """The keeper cannot do what it should, such as bounding the logs on disk; the gang goes on."""

    text: str


Event = (
    Spawn
    | Exit
    | Signal
    | Operator
    | PhaseEvent
    | Health
    | Gang
    | Title
    | State
    | Kernel
    | Gpu
    | MemoryTaken
    | Alarm
)
