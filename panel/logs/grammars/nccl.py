"""NCCL, which writes by itself: `host:pid:tid [cudaDev] NCCL INFO text`.

The device is that of the process, so that with one visible GPU a process it is always 0: ranks are
known by pid only.
"""

from __future__ import annotations

import re

from panel.logs.prefix import Prefix
from panel.logs.severity import NAMES

_HEAD = re.compile(
    r"(?:\[(?P<printed>\d{4}-\d\d-\d\d \d\d:\d\d:\d\d)\] )?"
    r"[\w.-]+:(?P<pid>\d+):\d+ (?:\[-?\d+\] )?(?:\d+\.\d+ )?"
    r"(?:[\w./]+:\d+ (?:\([\w:~]+\) )?)?NCCL (?P<level>INFO|WARN|TRACE|CALL) ?"
)


def nccl(line: str) -> Prefix | None:
    """Read the prefix of a line of NCCL's."""
    match = _HEAD.match(line) if "NCCL " in line else None
    if match is None:
        return None
    printed, level, pid = match["printed"] or "", NAMES[match["level"]], int(match["pid"])
    return Prefix(match.end(), printed, level, None, None, pid)
