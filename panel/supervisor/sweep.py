"""Ends what is left of a gang whose keeper is gone."""

from __future__ import annotations

import os
import select
import signal
import subprocess
import sys
import time
from contextlib import ExitStack
from pathlib import Path
from typing import NamedTuple

from panel.supervisor import procfs
from panel.supervisor.keepers import ROOT

GRACE_S = 3.0
"""From TERM to KILL; the ranks have seen the end of their keeper and are leaving already."""
LAST_WAIT_S = 10.0


class Swept(NamedTuple):
    """What was done."""

    found: int
    """Processes that were left."""
    left: tuple[int, ...]
    """Those that could not be ended."""


def sweep_nodes(folder: Path, uuid: str) -> Swept:
    """End what a launch over several nodes left there and here. Blocks."""
    program = [sys.executable, "-m", "panel.supervisor.fleet", "--end", str(folder)]
    subprocess.run(program, stdin=subprocess.DEVNULL, cwd=ROOT, check=False)
    return sweep(uuid)


def sweep(uuid: str) -> Swept:
    """End every process of a launch by TERM, then KILL. Blocks until they are gone or given up."""
    found = _living(uuid)
    _end(found, signal.SIGTERM, GRACE_S)
    # Anew: what was forked meanwhile is to go too.
    for _ in range(3):
        if not (left := _living(uuid)):
            break
        _end(left, signal.SIGKILL, LAST_WAIT_S)
    return Swept(len(found), tuple(_living(uuid)))


def _living(uuid: str) -> list[int]:
    marked = procfs.marked({procfs.LAUNCH_MARKER: uuid})
    return [pid for pid in marked if procfs.state(pid) not in (None, "Z", "X")]


def _end(pids: list[int], sig: signal.Signals, seconds: float) -> None:
    """Signal these processes and wait until all have ended, at most `seconds`."""
    deadline = time.monotonic() + seconds
    with ExitStack() as stack:
        waiting = select.poll()
        alive = 0
        for pid in pids:
            try:
                pidfd = os.pidfd_open(pid)
                stack.callback(os.close, pidfd)
                signal.pidfd_send_signal(pidfd, sig)
            except ProcessLookupError:
                continue
            waiting.register(pidfd, select.POLLIN)
            alive += 1
        while alive and (left := deadline - time.monotonic()) > 0:
            for pidfd, _ in waiting.poll(left * 1000):
                waiting.unregister(pidfd)
                alive -= 1
