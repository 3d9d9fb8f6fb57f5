"""Times of log rows: since launch, of the day, since the crash; and moments as operators type them.
Pure."""

from __future__ import annotations

import re
import time
from enum import Enum
from typing import NamedTuple

from panel.domain.errors import UsageError
from panel.widgets.words import stamp

_MOMENT = re.compile(
    r"(?P<crash>crash)?(?P<sign>[+-])?(?:(?:(?:(?P<h>\d+):)?(?P<m>\d+):)?(?P<s>\d+(?:\.\d+)?))?"
)
_DAY_S = 86_400


class Clock(Enum):
    """What times are counted from."""

    LAUNCH = "launch"
    DAY = "day"
    CRASH = "crash"


class Epoch(NamedTuple):
    """When a launch began and failed."""

    t0_unix: float = 0.0
    crash_t: float | None = None
    """Seconds since launch."""


WIDTHS = {Clock.LAUNCH: 9, Clock.DAY: 12, Clock.CRASH: 10}
"""Cells of a time."""


def shown(t: float, clock: Clock, epoch: Epoch) -> str:
    """Return seconds since launch as `12:31.220`, `13:45:07.220` or `-02:31.220`."""
    if clock is Clock.DAY:
        wall = epoch.t0_unix + t
        thousandths = int(wall % 1 * 1000)
        return f"{time.strftime('%H:%M:%S', time.localtime(wall))}.{thousandths:03}"
    if clock is Clock.CRASH and epoch.crash_t is not None:
        since = t - epoch.crash_t
        return ("-" if since < 0 else "+") + stamp(abs(since))
    return stamp(t)


def clocks(epoch: Epoch) -> list[Clock]:
    """Return the ways that make sense."""
    return [clock for clock in Clock if clock is not Clock.CRASH or epoch.crash_t is not None]


def moment(text: str, epoch: Epoch) -> float:
    """Return the seconds since launch that `751`, `12:31`, `crash`, `crash-10` or, with hours, a
    time of the day means. Raises `UsageError`."""
    match = _MOMENT.fullmatch(text.strip())
    if match is None or not text.strip() or (match["sign"] and not match["crash"]):
        raise UsageError(f"{text!r} is no time", "write 751, 12:31, 13:45:07 or crash-10")
    seconds = float(match["s"] or 0) + 60 * int(match["m"] or 0) + 3600 * int(match["h"] or 0)
    if match["crash"]:
        if epoch.crash_t is None:
            raise UsageError("this launch did not crash", "write seconds since launch")
        return max(epoch.crash_t + (-seconds if match["sign"] == "-" else seconds), 0.0)
    if match["h"] is None:
        return seconds
    began = time.localtime(epoch.t0_unix)
    since_midnight = 3600 * began.tm_hour + 60 * began.tm_min + began.tm_sec
    # A launch that goes past midnight has times of the next day.
    return (seconds - since_midnight) % _DAY_S
