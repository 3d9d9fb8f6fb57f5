"""The processes of a gang: started, watched by pidfd, reaped by pid."""

from __future__ import annotations

import os
import signal
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, nullcontext
from typing import NamedTuple

from panel.supervisor.keeper.loop import Loop

Ended = Callable[["Process", int | None], None]
"""Told of a death and of the exit code: negative for signals, None where it is not ours to know."""


class Process(NamedTuple):
    """A process that was alive when last heard of."""

    pid: int
    source: str
    pidfd: int

    def send(self, sig: int) -> bool:
        """Send the signal `sig`; return False where the process is gone, or not ours to signal."""
        try:
            signal.pidfd_send_signal(self.pidfd, sig)
        except (ProcessLookupError, PermissionError):
            return False
        return True


class Children:
    """Processes of the gang that are watched, by pid."""

    def __init__(self, loop: Loop) -> None:
        self._loop = loop
        self.alive: dict[int, Process] = {}

    def watch(self, pid: int, source: str, ended: Ended) -> None:
        """Call `ended` when `pid` ends; at once where it is gone already."""
        try:
            process = Process(pid, source, os.pidfd_open(pid))
        except ProcessLookupError:
            ended(Process(pid, source, -1), None)
            return

        def readable() -> None:
            self._loop.remove(process.pidfd)
            os.close(process.pidfd)
            del self.alive[pid]
            ended(process, _reap(pid))

        self.alive[pid] = process
        self._loop.add(process.pidfd, readable)

    def reap_strays(self) -> None:
        """Reap orphans that became our children unnoticed.

        One that is watched stays until its own turn has come, so that no exit code is lost.
        """
        while True:
            try:
                found = os.waitid(os.P_ALL, 0, os.WEXITED | os.WNOHANG | os.WNOWAIT)
            except ChildProcessError:
                return
            if found is None or found.si_pid in self.alive:
                return
            _reap(found.si_pid)


def start(
    argv: list[str],
    env: Mapping[str, str],
    *,
    stdin: int,
    stdout: int,
    stderr: int,
    cwd: str | None = None,
) -> int:
    """Start a process with these three descriptors and no others; return its pid.

    Raises OSError where the program or the folder is not to be had.
    """
    with _inside(cwd) if cwd is not None else nullcontext():
        return os.posix_spawn(
            _program(argv[0], env),
            argv,
            env,
            file_actions=[
                (os.POSIX_SPAWN_DUP2, stdin, 0),
                (os.POSIX_SPAWN_DUP2, stdout, 1),
                (os.POSIX_SPAWN_DUP2, stderr, 2),
            ],
            # Python ignores these two, which a program inherits and does not expect.
            setsigdef=[signal.SIGPIPE, signal.SIGXFSZ],
        )


@contextmanager
def _inside(folder: str) -> Iterator[None]:
    # posix_spawn starts a program in the folder of its parent only.
    here = os.open(".", os.O_PATH | os.O_DIRECTORY)
    try:
        os.chdir(folder)
        yield
    finally:
        os.fchdir(here)
        os.close(here)


def _program(name: str, env: Mapping[str, str]) -> str:
    """Find `name` as the process itself would, in its own PATH."""
    if "/" not in name:
        for folder in os.get_exec_path(env):
            path = os.path.join(folder, name)
            if os.access(path, os.X_OK):
                return path
    return name


def _reap(pid: int) -> int | None:
    try:
        found = os.waitid(os.P_PID, pid, os.WEXITED | os.WNOHANG)
    except ChildProcessError:
        return None  # Somebody else's child.
    if found is None:
        return None
    return found.si_status if found.si_code == os.CLD_EXITED else -found.si_status
