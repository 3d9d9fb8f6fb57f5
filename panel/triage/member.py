"""One process of a gang, and what it is there for."""

from __future__ import annotations

import re
from dataclasses import dataclass

from panel.domain.events import Exit

_TRACKER = re.compile(r"resource_tracker")
_CHILD = re.compile(r"spawn_main|--multiprocessing-fork")
_CORE = re.compile(r"EngineCore")
_WORKER = re.compile(r"Worker|scheduler", re.IGNORECASE)
_HELPER = re.compile(r"::|detokenizer|controller|router|tokenizer")


@dataclass(slots=True)
class Member:
    """One process of the gang."""

    pid: int
    source: str
    ppid: int | None = None
    rank: int | None = None
    command: str = ""
    inner: bool = False
    """Another member started it."""
    title: str = ""
    exit: Exit | None = None
    asked: bool = False
    """Its end was asked for."""
    stopped_t: float | None = None
    """Since when it is in state T; that it ends changes nothing."""
    place: int = 0
    """Its place among the exits."""

    @property
    def role(self) -> str:
        """rank, core, frontend, helper, child (not yet known), spawner, or tracker (whose end says
        nothing)."""
        if self.rank is not None:
            return "rank"
        if _TRACKER.search(self.command) or self.source == "spawner":
            return "tracker" if self.source != "spawner" else "spawner"
        if _CORE.search(self.title):
            return "core"
        if _WORKER.search(self.title):
            return "rank"
        if _HELPER.search(self.title):
            return "helper"
        if self.ppid is not None and _CHILD.search(self.command):
            return "child"
        # Compilers and the like come and go.
        return "tracker" if self.inner else "frontend"

    @property
    def label(self) -> str:
        """How people call it."""
        if self.rank is not None:
            return f"rank {self.rank}"
        names = {"core": "EngineCore", "frontend": "the front end", "spawner": "the spawner"}
        title = self.title.rpartition("::")[2]
        return names.get(self.role) or (f"the {title}" if title else f"process {self.pid}")
