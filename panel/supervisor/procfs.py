"""What /proc says about processes. Standard library only: the keeper uses it too.

A process may end between any two reads, so every answer is either whole or None.
"""

from __future__ import annotations

import os
from collections.abc import Iterable, Mapping
from typing import NamedTuple

LAUNCH_MARKER = "MOEPANEL_LAUNCH"
"""Environment variable with the uuid of the launch."""
KEEPER_MARKER = "MOEPANEL_KEEPER"
"""Environment variable with the id of the keeper that started the process."""


class Stat(NamedTuple):
    """One process. `start_ticks`: clock ticks from boot to its start."""

    pid: int
    state: str
    """R, S, D, T, t, Z, X: see proc_pid_stat(5)."""
    ppid: int
    start_ticks: int


def boot_id() -> str:
    """Return the id of this boot of the host; `start_ticks` compare only within one."""
    return (_read("/proc/sys/kernel/random/boot_id") or b"").decode().strip()


def stat(pid: int) -> Stat | None:
    """Return the facts about `pid`, zombies included; None where there is no such process."""
    data = _read(f"/proc/{pid}/stat")
    if not data:
        return None
    # The command in parentheses may itself hold spaces and parentheses.
    fields = data[data.rindex(b")") + 2 :].split()
    return Stat(pid, fields[0].decode(), int(fields[1]), int(fields[19]))


def start_ticks(pid: int) -> int | None:
    """Return when `pid` started; None where there is no such process."""
    found = stat(pid)
    return found.start_ticks if found else None


def state(pid: int) -> str | None:
    """Return the state letter of `pid`; None where there is no such process."""
    found = stat(pid)
    return found.state if found else None


def is_alive(pid: int, start_ticks: int) -> bool:
    """True where `pid` is still the process that started then, and no zombie."""
    found = stat(pid)
    return found is not None and found.start_ticks == start_ticks and found.state not in "ZX"


def command_line(pid: int) -> str:
    """Return the arguments of `pid` joined by spaces; empty for zombies and kernel threads."""
    data = _read(f"/proc/{pid}/cmdline") or b""
    return data.rstrip(b"\0").replace(b"\0", b" ").decode(errors="replace")


def pids() -> set[int]:
    """Return all process ids that this process can see."""
    return {int(name) for name in os.listdir("/proc") if name.isdigit()}


def marked(markers: Mapping[str, str]) -> list[int]:
    """Return the processes that were started with any of these `NAME: value` in their environment.

    The environment is the one given at exec: what a process sets later is not seen, what it was
    forked with is. Processes of other users are not seen.
    """
    wanted = [f"{name}={value}".encode() for name, value in markers.items()]
    found = []
    for pid in pids():
        entries = (_read(f"/proc/{pid}/environ") or b"").split(b"\0")
        if any(entry in entries for entry in wanted):
            found.append(pid)
    return sorted(found)


def descendants(pid: int) -> list[Stat]:
    """Return children, grandchildren and so on of `pid`, zombies included, parents first."""
    everybody = [found for each in pids() if (found := stat(each))]
    return below({pid}, everybody)


def below(ancestors: set[int], everybody: Iterable[Stat]) -> list[Stat]:
    """Return those of `everybody` that descend from one of `ancestors`, parents first."""
    children: dict[int, list[Stat]] = {}
    for each in everybody:
        children.setdefault(each.ppid, []).append(each)
    found: list[Stat] = []
    parents = sorted(ancestors)
    for parent in parents:
        for child in children.get(parent, ()):
            if child.pid not in ancestors:
                found.append(child)
                parents.append(child.pid)
    return found


def _read(path: str) -> bytes | None:
    # A process that ends meanwhile fails the read with ESRCH, a foreign one with EACCES.
    try:
        with open(path, "rb") as file:
            return file.read()
    except OSError:
        return None
