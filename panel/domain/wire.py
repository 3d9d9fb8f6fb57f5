"""Bodies of the supervisor's HTTP API besides the snapshot."""

from __future__ import annotations

import msgspec

from panel.domain.flags import Request
from panel.domain.states import LaunchState


class Up(msgspec.Struct, frozen=True, kw_only=True):
    """Body of `POST /v1/up` and, to plan from a profile, of `POST /v1/plan`."""

    profile: str | None = None
    """None: the profile of the last launch, else the default one."""
    set: dict[str, str] = {}


class Relaunch(msgspec.Struct, frozen=True, kw_only=True):
    """Body of `POST /v1/relaunch` and of `POST /v1/plan?base=latest`."""

    set: dict[str, str] = {}
    unset: tuple[str, ...] = ()
    reset: bool = False
    """Start from the profile instead of the last request."""
    profile: str | None = None
    """Go to another profile; its request starts empty."""
    force: bool = False
    """Launch although the plan refuses, where the engine lets it."""


class Down(msgspec.Struct, frozen=True, kw_only=True):
    """Body of `POST /v1/down` and `POST /v1/shutdown`."""

    now: bool = False
    """KILL at once instead of TERM and grace."""


class Accepted(msgspec.Struct, frozen=True, kw_only=True):
    """The launch that the request concerns; None where there was nothing to do."""

    launch: int | None


class LogWindow(msgspec.Struct, frozen=True, kw_only=True):
    """A piece of one log, whole lines, secrets redacted without changing lengths."""

    source: str
    offset: int
    """Byte offset of the first byte of `text` (UTF-8 with replacement) in the file."""
    end: int
    """Byte offset behind the last byte."""
    size: int
    """Bytes in the file."""
    text: str
    times: tuple[tuple[float, int], ...] = ()
    """(seconds since launch, offset): bytes from this offset on arrived then; the first pair may
    lie before `offset`."""


class LogWindows(msgspec.Struct, frozen=True, kw_only=True):
    """Answer of `GET /v1/launches/{id}/logs?at=SOURCE:OFFSET…&limit=`."""

    windows: tuple[LogWindow, ...]


class LaunchRecord(msgspec.Struct, frozen=True, kw_only=True):
    """A row of the ledger."""

    id: int
    uuid: str
    request: Request
    engine: str
    version: str
    state: LaunchState
    t0_unix: float
    ended_unix: float | None = None
    ready_s: float | None = None
    flags: dict[str, str] = {}
    phases: dict[str, float] = {}
    """Seconds in each phase of the slowest rank."""
    outcome: str = ""
    """The verdict's headline, or how it ended."""
    tok_s: float | None = None
    """Mean of the ten busiest seconds that had work; of fewer where there were fewer."""
    versions: dict[str, str] = {}
    """python, torch, panel, driver: what the run stood on."""
    env: dict[str, str] = {}
    """What the gang's environment had beyond the supervisor's own, secrets masked."""


class ApiError(msgspec.Struct, frozen=True, kw_only=True):
    """What is wrong, for an operator, with the exit code of a command that meets it."""

    kind: str
    message: str
    hint: str = ""
    exit: int = 1


class ErrorReply(msgspec.Struct, frozen=True, kw_only=True):
    """Body of every answer with a status of 400 and more."""

    error: ApiError
