"""Who listens on a TCP port of this node, as far as /proc tells."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

from panel.supervisor import procfs

_LISTEN = "0A"
_COMMAND_CHARS = 60


def listener(port: int) -> str:
    """Return `process 4711 (python serve.py)`; empty where the kernel does not say whose it is."""
    sockets = set(_sockets(port))
    if not sockets:
        return ""
    for pid in sorted(procfs.pids()):
        if sockets & set(_open(pid)):
            command = procfs.command_line(pid)
            more = "\u2026" if len(command) > _COMMAND_CHARS else ""
            return f"process {pid} ({command[:_COMMAND_CHARS]}{more})"
    return ""


def _sockets(port: int) -> Iterator[str]:
    """Yield the names of the sockets that listen, as links in /proc/PID/fd have them."""
    for table in ("tcp", "tcp6"):
        try:
            lines = Path("/proc/net", table).read_text().splitlines()[1:]
        except OSError:
            continue
        for fields in map(str.split, lines):
            if fields[3] == _LISTEN and int(fields[1].rpartition(":")[2], 16) == port:
                yield f"socket:[{fields[9]}]"


def _open(pid: int) -> Iterator[str]:
    """Yield what the descriptors of a process are; none of one that is gone or another user's."""
    try:
        with os.scandir(f"/proc/{pid}/fd") as entries:
            for entry in entries:
                yield os.readlink(entry.path)
    except OSError:
        return
