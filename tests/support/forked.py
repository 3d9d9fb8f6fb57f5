"""Ranks that are forked from a test."""

from __future__ import annotations

import os
import signal
import traceback
from collections.abc import Callable

SECONDS = 60
"""How long a rank has: it would wait for ever for a peer that has given up."""


def forked(ranks: int, body: Callable[[int], None]) -> list[int]:
    """Run `body` in each rank; return their exit codes."""
    pids = []
    for rank in range(ranks):
        pid = os.fork()
        if pid == 0:
            code = 1
            signal.alarm(SECONDS)
            try:
                body(rank)
                code = 0
            except BaseException:
                traceback.print_exc()
            finally:
                os._exit(code)
        pids.append(pid)
    return [os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) for pid in pids]
