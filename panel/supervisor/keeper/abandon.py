"""The way out when the keeper itself is broken: no policy, no loop, nothing it could trip over."""

from __future__ import annotations

import os
import signal
import time
from collections.abc import Mapping
from contextlib import suppress

from panel.supervisor.keeper.descent import remaining
from panel.supervisor.keeper.events import Events
from panel.supervisor.keeper.gang import LAST_WAIT_S

LOOK_S = 0.05


def abandon(events: Events, markers: Mapping[str, str], grace_s: float) -> None:
    """End whatever lives of the gang: TERM, `grace_s` seconds, KILL."""
    events.gang("failing", "the keeper met a fault of its own, see keeper.log")
    for sig, seconds in ((signal.SIGTERM, grace_s), (signal.SIGKILL, LAST_WAIT_S)):
        until = time.monotonic() + seconds
        for stat in remaining(markers):
            with suppress(ProcessLookupError):
                os.kill(stat.pid, sig)
                events.signal(stat.pid, sig)
        while remaining(markers) and time.monotonic() < until:
            time.sleep(LOOK_S)
            _reap(events)
    _reap(events)
    events.gang("down", alive=[stat.pid for stat in remaining(markers)])


def _reap(events: Events) -> None:
    with suppress(ChildProcessError):
        while found := os.waitid(os.P_ALL, 0, os.WEXITED | os.WNOHANG):
            exited = found.si_code == os.CLD_EXITED
            events.exit(found.si_pid, found.si_status if exited else -found.si_status)
