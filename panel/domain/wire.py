"""Bodies of the supervisor's HTTP API besides the snapshot."""

from __future__ import annotations

from typing import NamedTuple

import msgspec

from panel.domain.flags import Profile, Request
from panel.domain.states import LaunchState


class Up(msgspec.Struct, frozen=True, kw_only=True):
    """Body of `POST /v1/up` and, to plan from a profile, of `POST /v1/plan`."""

    profile: str | None = None
    """None: the profile of the last launch, else the default one."""
    set: dict[str, str] = {}
    recipe: Profile | msgspec.UnsetType = msgspec.UNSET
    """A profile that this node need not have; counts in place of `profile`."""


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


class ApiError(msgspec.Struct, frozen=True, kw_only=True):
    """What is wrong, for an operator, with the exit code of a command that meets it."""

    kind: str
    message: str
    hint: str = ""
    exit: int = 1


class Moment(NamedTuple):
    """A place in a log by time: the last line before it."""

    t: float
    """Seconds since launch."""

    def __str__(self) -> str:
        return f"@{max(self.t, 0.0):.3f}"


class LogWindow(msgspec.Struct, frozen=True, kw_only=True):
    """A piece of one log, whole lines, secrets redacted without changing lengths."""

    source: str
    offset: int
    """Byte offset of the first byte of `text` in the file; UTF-8, a SUB for each invalid byte."""
    end: int
    """Byte offset behind the last byte."""
    size: int
    """Bytes in the file."""
    text: str
    times: tuple[tuple[float, int], ...] = ()
    """(seconds since launch, offset): bytes from this offset on arrived then; the first pair may
    lie before `offset`."""
    skipped: int = 0
    """Bytes right before `offset` that were punched out of an overlong log."""
    file: int = 0
    """Inode: with another number it is another file of the same name."""
    dialect: tuple[str, ...] = ()
    """How it is written, by the names in `panel.logs.grammars`; empty: as our engine writes."""
    pids: dict[int, int] = {}
    """Ranks by pid, where several ranks write one log."""
    trouble: str = ""
    """Why it cannot be read; there is no text then."""


class LogWindows(msgspec.Struct, frozen=True, kw_only=True):
    """Answer of `GET /v1/launches/{id}/logs`, with what a reader needs to know of the launch."""

    windows: tuple[LogWindow, ...]
    world_size: int = 0
    t0_unix: float = 0.0
    crash_t: float | None = None
    """Seconds since launch at which it began to fail."""
    folder: str = ""
    """Path of the evidence folder on the node."""


class Found(msgspec.Struct, frozen=True, kw_only=True):
    """A line of the answer of `GET /v1/launches/{id}/search`: what one piece of a log holds."""

    source: str = ""
    start: int = 0
    end: int = 0
    """The piece; those of one source join, newest first, then what grows."""
    count: int = 0
    """Lines found in it."""
    offsets: tuple[int, ...] = ()
    """Where they begin, ascending; empty once more were listed than asked for."""
    times: tuple[tuple[float, int], ...] = ()
    """(seconds since launch, how many): when the next so many of `offsets` arrived."""
    left: int = 0
    """Bytes of all sources that are still to be searched."""
    error: ApiError | None = None
    """Why it ends here."""


class LogRecord(msgspec.Struct, frozen=True, array_like=True):
    """A record of a log, redacted."""

    source: str
    offset: int
    part: int
    t: float
    rank: int | None
    level: int
    prefix: str
    text: str
    pid: int | None = None


class LogRecords(msgspec.Struct, frozen=True, kw_only=True):
    """Answer of `GET /v1/launches/{id}/records?at=SOURCE:OFFSET…`."""

    records: tuple[LogRecord, ...]


class Evidence(msgspec.Struct, frozen=True, kw_only=True):
    """Answer of `GET /v1/launches/{id}/evidence?offset=N`, for whoever keeps a copy."""

    t: float
    """Seconds since launch at this moment; stands still once the gang is down."""
    live: bool
    """Whether anything of it may exist; with False nothing will be added."""
    state: LaunchState
    outcome: str
    """The verdict's headline, if any."""
    events: str
    """Whole lines of events.jsonl from the offset on."""
    end: int
    """Offset behind them."""


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


class ErrorReply(msgspec.Struct, frozen=True, kw_only=True):
    """Body of every answer with a status of 400 and more."""

    error: ApiError
