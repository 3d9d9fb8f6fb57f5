"""The interface between panel and engine: small, and without any effect but reading a file."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import NamedTuple, Protocol

import msgspec

from panel.domain.flags import Flag, Installation, Toggle


class Policy(msgspec.Struct, frozen=True):
    """How a gang ends: seconds for last words, and from TERM to KILL."""

    evidence_s: float = 2.0
    grace_s: float = 10.0


class SpawnerJob(msgspec.Struct, frozen=True, kw_only=True):
    """What a spawner that waits already is told: the engine's flags, and each source's log."""

    argv: list[str]
    logs: dict[str, str]


class ProcessJob(msgspec.Struct, frozen=True, kw_only=True):
    """A process that the keeper starts itself."""

    source: str
    argv: list[str]
    cwd: str | None
    log: str
    world_size: int
    stop: list[str] = []
    """What ends processes that are no children of ours, such as those of a container."""
    pids: list[str] = []
    """What prints the ids of such processes."""


class Command(msgspec.Struct, frozen=True, kw_only=True):
    """The engine's part of the keeper's order."""

    spawner: SpawnerJob | None = None
    processes: list[ProcessJob] = []


class Progress(NamedTuple):
    """What a rank last said of itself."""

    phase: str
    done: int
    total: int
    detail: int
    step: int = 0
    age: float | None = None
    """Seconds since it said so; None where the engine has no heartbeat and only its log tells."""
    meetings: int = 0
    """How many meetings with the other ranks it has come to; 0 where the engine does not count."""
    waiting: bool = False
    """It has been waiting in the last one for more than a moment."""
    said: str = ""
    """The last line of its own, where ranks share a log."""


class Pulse(Protocol):
    """What the ranks of one launch last said of themselves, by heartbeat or by log."""

    def read(self) -> tuple[Progress | None, ...]:
        """Return the last word of each rank, None before the first."""

    def memory(self) -> Mapping[int, Mapping[str, int]]:
        """Return what each rank said that it took, by category, where it says so here."""

    def close(self) -> None:
        """Let go of the file."""


class MetricNames(msgspec.Struct, frozen=True, kw_only=True):
    """Names of an engine's Prometheus samples; empty where it has none."""

    generated: str
    running: str
    waiting: str
    kv_used: str = ""
    kv_total: str = ""
    kv_share: str = ""
    """Used part of the cache, 0 to 1, where no tokens are counted."""
    kv_blocks: str = ""
    """A sample with the labels `num_gpu_blocks` and `block_size`, where there is no total."""
    throughput: str = ""
    """Tokens a second, where the counter only moves when a request ends."""
    drafts: str = ""
    accepted: str = ""
    acceptance: str = ""
    """Tokens a verify pass, where drafts are not counted."""
    speculation: str = ""
    """What all names begin with, where drafts are told of in full as by our own engine."""
    first_token: str
    """A histogram, seconds."""
    inter_token: str
    """A histogram, seconds."""


class Engine(Protocol):
    """One engine. `values` are flag texts by long name, without neutral names."""

    name: str
    exit_words: Mapping[int, str]
    victim_codes: frozenset[int]
    """Exit codes by which a process says that another one is to blame."""
    spawner: tuple[str, ...]
    """Module arguments (`-m`, name) of the process that can be started before the flags are known;
    empty where there is none."""
    metric_names: MetricNames
    health: str
    """Path of the API that answers 200 once requests are served, and costs nothing to ask."""
    policy: Policy

    @property
    def outside(self) -> bool:
        """Whether its processes are no children of ours, such as those of a container."""

    def at(self, installation: Installation) -> Engine:
        """Return the engine as it is installed there. Raises `UsageError` where it cannot be."""

    def environment(self) -> dict[str, str]:
        """Return the variables that the engine needs to be kept and watched well."""

    def version(self) -> str:
        """Return the engine's version, empty where it is not installed."""

    def missing(self) -> str | None:
        """Return what to install, in one sentence; None where the engine can run."""

    def flags(self) -> tuple[Flag, ...]:
        """Return all flags in the order of their groups."""

    def neutral(
        self, toggle: Toggle, text: str, values: Mapping[str, str]
    ) -> dict[str, str | None]:
        """Return the flags that a neutral name stands for, given all others; None: not passed.

        Raises `UsageError` for a text that it does not know.
        """

    def check(self, values: Mapping[str, str]) -> None:
        """Raise `UsageError` with the nearest names for an unknown flag or a bad value."""

    def world_size(self, values: Mapping[str, str]) -> int:
        """Return the number of ranks."""

    def sources(self, values: Mapping[str, str]) -> dict[str, int | None]:
        """Return the rank of each source of the launch; None where it is none."""

    def chips(self, values: Mapping[str, str]) -> tuple[str, ...]:
        """Return the launch in a few words."""

    def address(self, values: Mapping[str, str]) -> tuple[str, int]:
        """Return host and port that the API binds."""

    def api_key(self, values: Mapping[str, str]) -> str | None:
        """Return the bearer token of the API."""

    def node_flags(self, index: int, count: int, address: str) -> dict[str, str]:
        """Return the flags of node `index` of `count`; `address` is that of the first.

        Raises `UsageError` where the engine runs on one node only.
        """

    def evidence_flags(self, folder: Path) -> dict[str, str]:
        """Return the flags by which the engine leaves its evidence in the launch's folder."""

    def command(self, values: Mapping[str, str], folder: Path) -> Command:
        """Return how to start it; `values` contain the flags for the evidence."""

    def pulse(self, folder: Path, world_size: int) -> Pulse | None:
        """Return what tells of the ranks, once it exists."""
