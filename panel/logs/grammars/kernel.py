"""The kernel log: `dmesg`, `dmesg -T`, `journalctl -k` and what container hosts make of them."""

from __future__ import annotations

import re

from panel.logs.prefix import Grammar, Prefix
from panel.logs.severity import Level

_HEAD = re.compile(
    r"(?:<\d+>)?\[ *(?P<uptime>\d+\.\d+)\] "
    r"|\[(?P<date>[A-Z][a-z]{2} [A-Z][a-z]{2} +\d+ \d\d:\d\d:\d\d \d{4})\] "
    r"|kern: *\w+: \[(?P<iso>[^\]]+)\]: "
    r"|(?P<journal>[A-Z][a-z]{2} +\d+ \d\d:\d\d:\d\d) [\w.-]+ kernel: "
)
_GRAVE = re.compile(
    r"NVRM: Xid|\bSXid|oom-kill:|Killed process|Out of memory|oom_reaper|segfault at"
    r"|fallen off the bus|lost from the bus|GPU is probably locked|aer_uncor_status"
)


def kernel(line: str) -> Prefix | None:
    """Read the prefix of a kernel line; a message about a GPU or a kill needs none."""
    match = _HEAD.match(line)
    if match is None:
        return Prefix(0, "", Level.ERROR, None, None) if grave(line) else None
    printed = next(filter(None, match.groups()))
    level = Level.ERROR if grave(line) else Level.INFO
    return Prefix(match.end(), printed, level, None, None)


def grave(line: str) -> bool:
    """Return whether the kernel tells of a GPU fault or of a killed process."""
    return _GRAVE.search(line) is not None


KERNEL = Grammar("kernel", kernel, re.compile(r"\[ *\d+\.\d{6}\] NVRM: "))
