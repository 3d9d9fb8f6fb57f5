"""One look at a gang: py-spy, where that may not look the process's own dump, then the groups."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from pathlib import Path

from panel.domain.stacks import ProcessStacks, Stacks
from panel.probes.stacks import pyspy, signalled
from panel.probes.stacks.grouping import group
from panel.probes.stacks.pyspy import Target


def take(
    targets: Sequence[Target],
    *,
    t: float,
    reason: str,
    native: bool = False,
    seconds: float = 5.0,
    log_of: Callable[[str], Path] | None = None,
) -> Stacks:
    """Return the stacks of all targets. Blocks for at most about `seconds`.

    `log_of` returns the log of a source of our own engine, whose ranks can write their stacks.
    """
    begun = time.monotonic()
    processes = list(pyspy.dump(targets, native=native, seconds=seconds))
    if log_of is not None:
        for index, (target, found) in enumerate(zip(targets, processes, strict=True)):
            left = seconds - (time.monotonic() - begun)
            if found.trouble and left > 0:
                processes[index] = _own(target, log_of(target.source), left) or found
    return Stacks(
        t=round(t, 3),
        reason=reason,
        native=native,
        groups=group(processes),
        processes=tuple(processes),
        seconds=round(time.monotonic() - begun, 3),
    )


def _own(target: Target, log: Path, seconds: float) -> ProcessStacks | None:
    found = signalled.dump(target, log, min(seconds, 1.0))
    return found if found is not None and found.threads else None
