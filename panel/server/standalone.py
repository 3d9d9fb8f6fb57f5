"""`moepanel serve`: the engine alone on a terminal."""

from __future__ import annotations

import os
import select
import signal
import sys
import time
from types import FrameType

from panel.server.exits import WORDS, Exit
from panel.server.options import OPTIONS, Option, OptionError, parse

_EVIDENCE_SECONDS = 2.0
"""What the survivors of a death get for their last words before they are asked to stop."""
_GRACE_SECONDS = 10.0
"""Time between SIGTERM, beyond the drain, and SIGKILL."""


def main(argv: list[str]) -> int:
    """Serve until SIGTERM or SIGINT or until a process dies; return the exit code."""
    if "--help" in argv:
        print(usage())
        return Exit.OK
    try:
        options = parse(argv)
    except OptionError as error:
        return _refuse(Exit.USAGE, error)
    from panel.server.spawner import preload

    preload()
    from panel.server import frontend
    from panel.server.checks import RefusedError, prepare
    from panel.server.gang import fork_gang

    try:
        gang = prepare(options)
    except RefusedError as refused:
        return _refuse(refused.code, refused)
    lifeline, keep = os.pipe()
    pids = fork_gang(gang, frontend.run, {}, lifeline, keep)
    return _Parent(pids, options.drain_seconds + _GRACE_SECONDS).watch()


def usage() -> str:
    """Return the table of flags."""
    lines = ["moepanel serve [--FLAG VALUE ...]", ""]
    group = ""
    for option in OPTIONS:
        if option.group != group:
            group = option.group
            lines += ["", group] if len(lines) > 2 else [group]
        lines.append(f"  --{option.name:<30} {option.help}{_bounds(option)}")
    return "\n".join(lines)


def _bounds(option: Option) -> str:
    parts = []
    if option.choices:
        parts.append(", ".join(option.choices))
    if option.default not in (None, False):
        parts.append(f"default {option.default}")
    return f" ({'; '.join(parts)})" if parts else ""


def _refuse(code: Exit, error: Exception) -> int:
    print(f"moepanel serve: {error}", file=sys.stderr)
    return code


class _Parent:
    """Looks after the forked processes: passes signals on, and ends all when one has died."""

    def __init__(self, pids: dict[str, int], stop_seconds: float) -> None:
        self._alive = {os.pidfd_open(pid): (name, pid) for name, pid in pids.items()}
        self._stop_seconds = stop_seconds
        self._poll = select.epoll()
        for descriptor in self._alive:
            self._poll.register(descriptor, select.EPOLLIN)
        self._stopping = False
        self._next: tuple[float, signal.Signals] | None = None
        """When to send which signal to all."""
        self._code = int(Exit.OK)
        signal.signal(signal.SIGTERM, self._on_signal)
        signal.signal(signal.SIGINT, self._on_signal)

    def watch(self) -> int:
        """Return once all have ended: the code of the first that failed, or 0."""
        while self._alive:
            for descriptor, _ in self._poll.poll(1.0 if self._next is None else 0.1):
                self._reap(descriptor)
            if self._next is not None and time.monotonic() >= self._next[0]:
                self._stop(self._next[1])
        return self._code

    def _on_signal(self, number: int, frame: FrameType | None) -> None:
        self._stop(signal.SIGKILL if self._stopping else signal.SIGTERM)

    def _stop(self, number: signal.Signals) -> None:
        self._stopping = True
        for _, pid in self._alive.values():
            os.kill(pid, number)
        self._next = (time.monotonic() + self._stop_seconds, signal.SIGKILL)

    def _reap(self, descriptor: int) -> None:
        self._poll.unregister(descriptor)
        name, pid = self._alive.pop(descriptor)
        os.close(descriptor)
        code = os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])
        if self._stopping:
            return
        words = f"signal {-code}" if code < 0 else WORDS.get(code, f"exit code {code}")
        print(f"moepanel serve: {name} (pid {pid}): {words}", file=sys.stderr)
        if self._next is None:
            self._next = (time.monotonic() + _EVIDENCE_SECONDS, signal.SIGTERM)
        if self._code in (Exit.OK, Exit.PEER):
            self._code = 128 - code if code < 0 else code or Exit.FAILED
