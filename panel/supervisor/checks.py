"""What speaks against a launch on this node now: its port, its disk."""

from __future__ import annotations

import errno
import os
import socket
from pathlib import Path

from panel.domain.plan import Problem, Severity
from panel.supervisor.ports import listener

_MIB = 1 << 20
_LEAST_FREE = 64 * _MIB
_LITTLE_FREE = 1024 * _MIB
_PORTS_TRIED = 100


def port_problems(host: str, port: int) -> tuple[Problem, ...]:
    """Return why the API could not bind its address, if so."""
    error = _bind_error(host, port)
    if error is None:
        return ()
    if error.errno == errno.EADDRINUSE:
        others = range(port + 1, min(port + _PORTS_TRIED, 1 << 16))
        free = next((other for other in others if not _bind_error(host, other)), None)
        remedy = {} if free is None else {"port": str(free)}
        way_out = "stop that one" if free is None else f"stop that one or take port {free}"
        holder = listener(port) or "another process"
        text = f"port {port} of {host} is taken by {holder}; {way_out}"
        return (Problem(severity="refusal", text=text, flag="port", remedy=remedy),)
    if error.errno == errno.EACCES:
        text = f"port {port} is for root only; take one above 1023"
        return (Problem(severity="refusal", text=text, flag="port"),)
    text = f"host {host} is no address of this node ({error.strerror}); try 127.0.0.1 or 0.0.0.0"
    return (Problem(severity="refusal", text=text, flag="host"),)


def disk_problems(folder: Path) -> tuple[Problem, ...]:
    """Return what the free space of the state folder means for a launch."""
    found = os.statvfs(folder)
    free = found.f_bavail * found.f_frsize
    if free >= _LITTLE_FREE:
        return ()
    severity: Severity = "refusal" if free < _LEAST_FREE else "warning"
    text = f"{folder}: {free // _MIB} MiB free for logs and evidence; free some disk space"
    return (Problem(severity=severity, text=text),)


def _bind_error(host: str, port: int) -> OSError | None:
    try:
        family, _, _, _, address = socket.getaddrinfo(
            host, port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE
        )[0]
        with socket.socket(family, socket.SOCK_STREAM) as probe:
            probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            probe.bind(address)
            # Another listener that also set SO_REUSEADDR shows only here.
            probe.listen(1)
    except OSError as error:
        return error
    return None
