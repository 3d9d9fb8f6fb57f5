"""Stacks of the processes of a gang at one moment, grouped by equal frames."""

from __future__ import annotations

import msgspec


class TakeStacks(msgspec.Struct, frozen=True, kw_only=True):
    """Body of `POST /v1/launches/{id}/stacks`."""

    native: bool = False
    """Frames of C and C++ too."""


class Frame(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """One frame; line 0 is not known, as of native code."""

    name: str
    file: str
    line: int = 0

    def __str__(self) -> str:
        place = f"{self.file}:{self.line}" if self.line else self.file
        return f"{self.name} ({place})"


class Thread(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """One thread, innermost frame first."""

    name: str
    frames: tuple[Frame, ...] = ()
    active: bool = False
    """It was running, not sleeping in the kernel."""
    gil: bool = False
    """It held the interpreter's lock."""


class ProcessStacks(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """The threads of one process, the main thread first."""

    source: str
    pid: int
    rank: int | None = None
    state: str = ""
    """As /proc has it; T is stopped by a signal, D waits for a device."""
    threads: tuple[Thread, ...] = ()
    trouble: str = ""
    """Why there are no threads, and what to do about it."""


class StackGroup(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """Processes whose main threads stand at the same place."""

    sources: tuple[str, ...]
    ranks: tuple[int, ...] = ()
    frames: tuple[Frame, ...] = ()
    """Of the first of them."""
    waits: str = ""
    """What they wait for, where the frames tell it."""


class Stacks(msgspec.Struct, frozen=True, kw_only=True):
    """What a look at all processes found. The odd group is the first."""

    t: float
    """Seconds since launch."""
    reason: str
    native: bool
    groups: tuple[StackGroup, ...]
    processes: tuple[ProcessStacks, ...]
    seconds: float = 0.0
    """How long the look took."""
    file: str = ""
    """Name below the evidence folder, where it was saved."""
