"""CPU, memory and threads of processes, from /proc."""

from __future__ import annotations

import os
from collections.abc import Iterable
from pathlib import Path
from typing import NamedTuple

_TICKS = os.sysconf("SC_CLK_TCK")
_PAGE = os.sysconf("SC_PAGE_SIZE")
_MIB = 1 << 20


class Usage(NamedTuple):
    """What a process uses."""

    cpu: float
    """Per cent of one core since the last sample."""
    rss: int
    """Bytes, to the MiB."""
    threads: int


class ProcessSampler:
    """Samples processes by pid."""

    def __init__(self) -> None:
        self._last: dict[int, tuple[float, int]] = {}

    def sample(self, pids: Iterable[int], now: float) -> dict[int, Usage]:
        """Return the usage of those that exist; `now` is monotonic seconds."""
        before, self._last = self._last, {}
        usages = {}
        for pid in pids:
            fields = _stat(pid)
            if fields is None:
                continue
            ticks = int(fields[11]) + int(fields[12])
            self._last[pid] = (now, ticks)
            then, last = before.get(pid, (now, ticks))
            spent = (ticks - last) / _TICKS
            usages[pid] = Usage(
                cpu=round(100 * spent / (now - then), 0) if now > then else 0.0,
                rss=int(fields[21]) * _PAGE // _MIB * _MIB,
                threads=int(fields[17]),
            )
        return usages


def _stat(pid: int) -> list[str] | None:
    """Return the fields of /proc/PID/stat from the third on."""
    try:
        text = Path(f"/proc/{pid}/stat").read_text(errors="replace")
    except OSError:
        return None
    # The second field is the command in parentheses, which may contain anything.
    return text[text.rindex(")") + 2 :].split()
