"""The plan: what a launch would be, known before it starts."""

from __future__ import annotations

from typing import Literal

import msgspec

from panel.domain.flags import Request

Severity = Literal["note", "warning", "refusal"]


class Problem(msgspec.Struct, frozen=True, kw_only=True):
    """Something the operator should know before the launch."""

    severity: Severity
    text: str
    """One sentence: what, why, and the way out."""
    flag: str | None = None
    remedy: dict[str, str] = {}
    """Flags that would mend it."""
    source: str = ""
    """Where the fact is from: a file of the engine, a thread; empty where it is ours."""


class Resolved(msgspec.Struct, frozen=True, kw_only=True):
    """One flag as the engine will see it."""

    name: str
    value: str
    origin: Literal["profile", "request", "panel"]
    """`panel`: set by the program, such as the evidence files."""


class Change(msgspec.Struct, frozen=True, kw_only=True):
    """A flag whose value differs between two launches; None is not passed."""

    name: str
    before: str | None
    after: str | None


class Override(msgspec.Struct, frozen=True, kw_only=True):
    """A flag or variable that the engine itself sets or changes at start."""

    name: str
    requested: str | None
    """None is not passed."""
    resolved: str
    reason: str
    source: str
    """Where the fact is from."""


class Memory(msgspec.Struct, frozen=True, kw_only=True):
    """One line of the memory table of a rank, in bytes."""

    category: str
    predicted: int
    note: str = ""


class Measured(msgspec.Struct, frozen=True, kw_only=True):
    """A part of a rank's memory as it was planned and as the engine found it."""

    part: str
    predicted: int | None
    """None: the plan did not know."""
    measured: int
    unit: Literal["bytes", "tokens"] = "bytes"


class Fit(msgspec.Struct, frozen=True, kw_only=True):
    """How the memory table stands to one GPU."""

    total: int
    """Bytes of one GPU."""
    estimated: bool
    """Weights are reckoned from the config; else counted from the checkpoint's headers."""
    kv_tokens: int
    after_weights: int
    """Bytes free once weights and workspaces are there."""
    left: int
    """Bytes that nothing is planned for; below 0 it does not fit."""


class Capability(msgspec.Struct, frozen=True, kw_only=True):
    """A path that the engine may have on these GPUs."""

    path: str
    state: Literal["there", "silently off", "opt-in", "refused"]
    why: str
    source: str
    unlock: str = ""
    """What would bring it."""


class Plan(msgspec.Struct, frozen=True, kw_only=True):
    """Resolved flags, memory, and what speaks against the launch."""

    request: Request
    engine: str
    version: str
    world_size: int
    flags: tuple[Resolved, ...]
    argv: tuple[str, ...]
    """The command line, secrets redacted."""
    chips: tuple[str, ...] = ()
    """The launch in a few words: tp8, ep8, ngram:4, graphs≤16."""
    overrides: tuple[Override, ...] = ()
    memory: tuple[Memory, ...] = ()
    measured: tuple[Measured, ...] = ()
    """What the ranks of the launch said that they took; empty before."""
    fit: Fit | None = None
    capabilities: tuple[Capability, ...] = ()
    problems: tuple[Problem, ...] = ()
    nodes: tuple[str, ...] = ()
    """Names of the nodes that share the ranks in equal runs; empty: this node alone."""
    changes: tuple[Change, ...] = ()
    """Against the running launch, or the last one."""

    @property
    def refused(self) -> bool:
        """Whether the launch cannot work."""
        return any(problem.severity == "refusal" for problem in self.problems)

    def values(self) -> dict[str, str]:
        """Return flag texts by name, without those the program sets itself."""
        return {flag.name: flag.value for flag in self.flags if flag.origin != "panel"}


def changes(before: dict[str, str], after: dict[str, str]) -> tuple[Change, ...]:
    """Return what differs between two sets of flags, by name."""
    return tuple(
        Change(name=name, before=before.get(name), after=after.get(name))
        for name in sorted(before.keys() | after.keys())
        if before.get(name) != after.get(name)
    )
