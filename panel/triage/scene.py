"""All evidence of one launch at one moment, put side by side."""

from __future__ import annotations

import math
import signal
from collections.abc import Collection, Mapping, Sequence
from typing import Literal, NamedTuple

from panel.domain.since import Since
from panel.triage.gang import GangState
from panel.triage.mark import Mark
from panel.triage.member import Member
from panel.triage.signature import Catalog
from panel.triage.trace import LogLine

NEVER = (math.inf, 0)
_STOP_SIGNALS = (-signal.SIGTERM, -signal.SIGQUIT, -signal.SIGINT)
"""By these parents end their children, and children tell their parents to end."""


Roots = tuple[int, ...] | Literal["all"]


class Beat(NamedTuple):
    """What a rank last said by its heartbeat."""

    rank: int
    phase: str
    step: int
    age: float
    """Seconds since it said so."""
    meetings: int = 0
    """How many meetings with the other ranks it has come to; 0 where the engine does not count."""
    waiting: bool = False
    """It waits in the last one."""


class ExitCodes(NamedTuple):
    """What an engine's exit codes mean."""

    words: Mapping[int, str]
    victims: Collection[int]
    """Codes by which a process says that another one is to blame."""


class Scene(NamedTuple):
    """What there is to judge from."""

    catalog: Catalog
    engine: str
    version: str
    flags: Mapping[str, str]
    world: int
    """0: not known."""
    gang: GangState
    marks: tuple[Mark, ...]
    """In order of arrival."""
    spoke: frozenset[int]
    """Ranks that said anything in a log."""
    phases: Mapping[int | None, str]
    """Phase of each rank; of None, that entered last by anybody."""
    serving: tuple[float, int] | None
    """When the engine last said that it serves."""
    last_byte: float
    """When the last byte of any log arrived."""
    last_line: str
    t: float
    timed: bool
    """Whether times of logs are arrival times."""
    tails: Mapping[str, Sequence[LogLine]]
    """The last lines of each log."""
    pids: Mapping[int, int] = {}
    """Rank by pid, as logs tell."""
    device: str = ""
    """Where the ranks compute, `cpu` or `cuda`; empty where they do not say."""
    buses: Mapping[str, int] = {}
    """Rank by PCI address, as NCCL tells."""
    usage: frozenset[str] = frozenset()
    """Flags that the engine's usage text lists."""
    beats: tuple[Beat, ...] = ()
    codes: ExitCodes = ExitCodes({}, ())
    missing: tuple[str, ...] = ()
    since: Since | None = None
    """What is new against the last good launch."""

    @property
    def everyone(self) -> frozenset[int]:
        """All ranks, as far as known."""
        return frozenset(range(self.world)) or self.spoke

    @property
    def has_ranks(self) -> bool:
        """Whether any rank existed, as far as known."""
        members = self.gang.members.values()
        return bool(self.spoke) or any(each.role == "rank" for each in members)

    @property
    def stop(self) -> tuple[float, int]:
        """When somebody asked the gang to stop."""
        asked = [mark.order for mark in self.marks if mark.signature and _stops(mark)]
        if self.gang.stop_t is not None:
            asked.append((self.gang.stop_t, -1))
        return min(asked, default=NEVER)

    def live(self, *roles: str) -> list[Mark]:
        """Return the marks of these roles that can tell of a failure: after the engine last began
        to serve (what it survived until then was none) and before it was asked to stop."""
        begin, end = self.serving or (-1.0, -1), self.stop
        return [
            mark
            for mark in self.marks
            if (mark.signature.role if mark.signature else "root") in roles
            and begin < mark.order < end
        ]

    def lived(self, rank: int) -> float:
        """Return until when a rank lived: up to now, or to its exit."""
        ended = (each.exit.t for each in self.gang.exits if each.rank == rank and each.exit)
        return next(ended, self.t)

    def before(self, mark: Mark, t: float) -> bool:
        """Return whether a mark came before an exit at `t`: where nobody noted when lines arrived,
        whoever spoke did so before it ended."""
        return mark.t <= t or not self.timed

    def phase(self, rank: int | None) -> str | None:
        """Return the phase of a rank, or of the gang."""
        if rank is not None and rank in self.gang.phases:
            return self.gang.phases[rank]
        return self.phases.get(rank) or self.phases.get(None)

    def blamed(self, ranks: Collection[int]) -> Roots:
        """Return ranks as a verdict names them."""
        chosen = frozenset(ranks)
        if self.world > 1 and chosen >= self.everyone:
            return "all"
        return tuple(sorted(chosen))

    def deaths(self) -> list[Member]:
        """Return the processes whose end accuses them, in order."""
        return [
            each
            for each in self.gang.unasked((*_STOP_SIGNALS, *self.codes.victims))
            if each.role not in ("tracker", "spawner") and each.exit and each.exit.code != 0
        ]


def _stops(mark: Mark) -> bool:
    return mark.signature is not None and mark.signature.role == "stop"
