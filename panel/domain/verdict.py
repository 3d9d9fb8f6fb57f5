"""What triage concludes."""

from __future__ import annotations

from typing import Literal

import msgspec

Status = Literal["crashed", "hung", "running", "refused", "stopped", "host_down"]
Confidence = Literal["high", "medium", "low"]


class Evidence(msgspec.Struct, frozen=True, kw_only=True):
    """A line that speaks for the verdict."""

    source: str
    offset: int
    line: int
    """Line number, from 1."""
    text: str


class Advice(msgspec.Struct, frozen=True, kw_only=True):
    """One thing to do: a cheap experiment that confirms, or the fix."""

    confirm: str | None = None
    change: dict[str, str] = {}
    """Flag to its new text; empty: not passed."""
    why: str = ""


class Related(msgspec.Struct, frozen=True, kw_only=True):
    """A kind that looks like the one that was found."""

    kind: str
    sign: str
    """By what it is told from the others."""


class Verdict(msgspec.Struct, frozen=True, kw_only=True):
    """Who failed first, how, why, and what to change."""

    status: Status
    headline: str
    cause: str = ""
    """Why that happens, in one sentence; empty where it is not known."""
    final: bool = False
    revision: int = 0
    t: float = 0.0
    """Seconds since launch at which this was concluded."""
    t_first: float | None = None
    """Seconds since launch of the first sign of failure."""
    kind: str | None = None
    family: str | None = None
    root_ranks: tuple[int, ...] | Literal["all"] = ()
    secondary: dict[str, str] = {}
    """Rank or source to label, such as `victim` or `killed_by_gang_stop`."""
    phase: str | None = None
    confidence: Confidence = "low"
    evidence: tuple[Evidence, ...] = ()
    advice: tuple[Advice, ...] = ()
    related: tuple[Related, ...] = ()
    """What it might be taken for; first, where anything is, its own kind."""
    missing: tuple[str, ...] = ()
    """Evidence that was not available."""
    note: str = ""
    """What was wrong before the operator stopped it."""

    @property
    def told(self) -> str:
        """The headline, and what came before it."""
        return f"{self.headline}; {self.note}" if self.note else self.headline

    @property
    def troubled(self) -> bool:
        """Whether there is anything to do about it: it failed, or runs and fails requests."""
        return self.failed or (self.status == "running" and self.kind is not None)

    @property
    def failed(self) -> bool:
        """Whether anything is wrong."""
        return self.status not in ("running", "stopped")
