"""Processes of the gang that nobody announced: found in /proc, by descent or by marker."""

from __future__ import annotations

import os
import signal
from collections.abc import Iterable, Mapping
from contextlib import suppress

from panel.supervisor import procfs


class Newcomers:
    """Finds the processes below the gang that appeared since the last look.

    A look costs one listing of /proc and one read for each process new to the host.
    """

    def __init__(self) -> None:
        self._seen: set[int] = set()

    def look(self, known: set[int]) -> list[procfs.Stat]:
        """Return newcomers, parents first. `known` are the processes watched already."""
        present = procfs.pids()
        new = [stat for pid in sorted(present - self._seen) if (stat := procfs.stat(pid))]
        self._seen = present
        # An orphan has become a child of the keeper by now.
        found = procfs.below(known | {os.getpid()}, new)
        return [stat for stat in found if stat.pid not in known]


def remaining(markers: Mapping[str, str]) -> list[procfs.Stat]:
    """Return whatever lives of the gang: descendants of this process, and bearers of a marker."""
    found = {stat.pid: stat for stat in procfs.descendants(os.getpid())}
    for pid in procfs.marked(markers):
        if pid not in found and pid != os.getpid() and (stat := procfs.stat(pid)):
            found[pid] = stat
    return [stat for stat in found.values() if stat.state not in "ZX"]


def kill(processes: Iterable[procfs.Stat]) -> None:
    """Send KILL to those that still live."""
    for stat in processes:
        with suppress(ProcessLookupError):
            os.kill(stat.pid, signal.SIGKILL)
