"""What stands before the text of a log line, and the grammars that read it."""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass
from typing import NamedTuple

from panel.logs.severity import Level


class Prefix(NamedTuple):
    """What a grammar reads from the head of a line."""

    end: int
    """Where the text begins."""
    printed: str
    """The time; empty where the format has none."""
    level: Level
    rank: int | None
    phase: str | None
    pid: int | None = None
    logged: bool = True
    """False where only the process is named, so that the line may continue that one's record."""


@dataclass(frozen=True, slots=True)
class Grammar:
    """How an engine begins its log lines."""

    name: str
    read: Callable[[str], Prefix | None]
    """Return what the prefix of a line says, None where it has none."""
    head: re.Pattern[str]
    """Where a record begins inside a line: behind a progress bar, or a write without newline."""
    loud: re.Pattern[bytes] | None = None
    """A newline behind which no record below a warning begins, for formats that print the level on
    every line: it leaves few lines to look at."""

    def __call__(self, line: str, /) -> Prefix | None:
        """Return what the prefix of `line` says, None where it has none."""
        return self.read(line)
