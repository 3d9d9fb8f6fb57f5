"""The host's clock."""

from __future__ import annotations

import ctypes
import os

from panel.probes.check import Check

_TIMEX_BYTES = 256
"""struct timex has 208 bytes; all zero it asks without changing anything."""
_TIME_ERROR = 5


def read_synchronised() -> bool | None:
    """Return whether the kernel takes its clock for synchronised; None where it does not say."""
    state = ctypes.CDLL(None, use_errno=True).adjtimex(ctypes.create_string_buffer(_TIMEX_BYTES))
    return None if state < 0 else state != _TIME_ERROR


def clock(synchronised: bool | None) -> Check:
    """Judge the clock, by which logs of several hosts are compared."""
    if synchronised is None:
        reason = os.strerror(ctypes.get_errno())
        return Check(name="clock", grade="info", text=f"state not known ({reason})")
    if synchronised:
        return Check(name="clock", grade="pass", text="synchronised")
    return Check(
        name="clock",
        grade="warn",
        text="not synchronised: its times do not compare with those of other hosts",
        mend="timedatectl set-ntp true",
    )
