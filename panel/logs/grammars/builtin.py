"""Our engine: `[2026-01-31 12:00:00.123 TP3 EP3 capture] INFO text`, on every line."""

from __future__ import annotations

import re

from panel.logs.prefix import Grammar, Prefix
from panel.logs.severity import NAMES

_TIME = r"\[\d{4}-\d\d-\d\d \d\d:\d\d:\d\d\.\d{3}"
_HEAD = re.compile(
    r"\[(?P<printed>\d{4}-\d\d-\d\d \d\d:\d\d:\d\d\.\d{3})"
    r"(?: (?:TP(?P<rank>\d+)|[A-Z_]+\d*))*"
    r"(?: (?P<phase>[a-z_]+))?\] "
    r"(?P<level>DEBUG|INFO|WARNING|ERROR|CRITICAL)(?: |$)"
)


def _read(line: str) -> Prefix | None:
    match = _HEAD.match(line)
    if match is None:
        return None
    printed, rank, phase, level = match["printed"], match["rank"], match["phase"], match["level"]
    return Prefix(match.end(), printed, NAMES[level], int(rank) if rank else None, phase)


BUILTIN = Grammar(
    "builtin",
    _read,
    head=re.compile(_TIME + r"[^\]]{0,80}\] [A-Z]{4,8} "),
    loud=re.compile(rb"\n(?!\[[-0-9:. A-Za-z_]*\] (?:DEBUG|INFO) )"),
)
