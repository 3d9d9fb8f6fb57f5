"""What torch writes by itself: c10's log, the excepthook's rank tags and torchrun's own lines."""

from __future__ import annotations

import re

from panel.logs.prefix import Grammar, Prefix
from panel.logs.severity import LETTERS, NAMES, Level

_C10 = re.compile(
    r"(?:\[rank(?P<rank>\d+)\]:)?"
    r"\[(?P<level>[IWEF])(?P<printed>\d{3,4} \d\d:\d\d:\d\d\.\d+)? [\w./]+\.(?:cpp|hpp|cc|h):\d+\] "
    r"(?:\[PG (?:ID )?(?P<group>\d+)(?: PG GUID [^ \]]+)? Rank (?P<inner>\d+)\] "
    r"|\[Rank (?P<old>\d+)\] )?"
)
_HOOK = re.compile(r"\[rank(?P<rank>\d+)\]: ?")
_AGENT = re.compile(
    r"(?P<letter>[IWEF])(?P<printed>\d{4} \d\d:\d\d:\d\d\.\d+) +\d+ [\w./-]+\.py:\d+\] "
    r"(?:\[[^\]]*\] )*"
    r"|\[(?P<old>\d{4}-\d\d-\d\d \d\d:\d\d:\d\d,\d{3})\] torch\.distributed\.[\w.]+: "
    r"\[(?P<word>DEBUG|INFO|WARNING|ERROR|CRITICAL)\] "
)


def c10(line: str) -> Prefix | None:
    """Read `[rank3]:[E421 22:56:09.123 ProcessGroupNCCL.cpp:2055] [PG ID 5 PG GUID 23 Rank 1] `.

    The outer rank is the global one; the inner is, in the default group and in old versions.
    """
    match = _C10.match(line)
    if match is None:
        return None
    inner = match["inner"] if match["group"] == "0" else None
    rank = match["rank"] or inner or match["old"]
    level = LETTERS[match["level"]]
    return Prefix(match.end(), match["printed"] or "", level, int(rank) if rank else None, None)


def excepthook(line: str) -> Prefix | None:
    """Read `[rank3]: `, which stands before each line of an exception that nobody caught."""
    match = _HOOK.match(line)
    return Prefix(match.end(), "", Level.ERROR, int(match["rank"]), None) if match else None


def agent(line: str) -> Prefix | None:
    """Read the prefix of a line of torchrun's."""
    match = _AGENT.match(line)
    if match is None:
        return None
    level = LETTERS[match["letter"]] if match["letter"] else NAMES[match["word"]]
    return Prefix(match.end(), match["printed"] or match["old"], level, None, None)


def _read(line: str) -> Prefix | None:
    return c10(line) or excepthook(line) or agent(line)


TORCH = Grammar("torch", _read, re.compile(r"\[rank\d+\]:"))
