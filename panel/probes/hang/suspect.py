"""When a gang is taken to be hanging: a rank that should move has not moved for too long. Pure."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from panel.domain.hang import Suspicion
from panel.domain.phases import Phase

SERVING_S = 10.0
"""A serving rank ticks several times a second, idle or not."""
PATIENCE_S: dict[str, float] = {
    Phase.IMPORT: 60,
    Phase.DIST_INIT: 60,
    Phase.WEIGHTS: 60,
    Phase.WORKSPACE: 60,
    Phase.DRAFT: 60,
    Phase.KV_CACHE: 60,
    Phase.CAPTURE: 120,
    Phase.WARMUP: 120,
}
"""Without any progress inside the phase; a compiler may well work for two minutes."""
_OTHERS_S = 30.0
NO_TOKEN_S = 30.0
"""With requests running; the prefill of a very long prompt may take half of it."""


class Pulse(NamedTuple):
    """What one rank last said."""

    rank: int
    phase: str
    age: float
    """Seconds since it said anything."""


def suspect(pulses: Sequence[Pulse], t: float) -> Suspicion | None:
    """Return why the gang is taken to be hanging, at `t` seconds since launch; None: it is not.

    `pulses` are those of the ranks that live.
    """
    late = [pulse for pulse in pulses if pulse.age > patience(pulse.phase)]
    if not late:
        return None
    longest = max(late, key=lambda pulse: pulse.age)
    ranks = tuple(sorted(pulse.rank for pulse in late))
    who = f"rank {ranks[0]}" if len(ranks) == 1 else f"{len(ranks)} of {len(pulses)} ranks"
    text = f"{who} without a beat for {longest.age:.0f} s in {longest.phase}"
    return Suspicion(since=round(t - longest.age, 3), ranks=ranks, text=text)


def suspect_stall(seconds: float, ranks: Sequence[int], t: float) -> Suspicion | None:
    """Return why a gang without heartbeats is taken to be hanging, None: it is not.

    `seconds`: for which requests have run and no token came.
    """
    if seconds < NO_TOKEN_S:
        return None
    text = f"requests run and no token came for {seconds:.0f} s"
    return Suspicion(since=round(t - seconds, 3), ranks=tuple(ranks), text=text)


def patience(phase: str) -> float:
    """Return the seconds for which a rank may be silent in a phase."""
    if phase in (Phase.SERVING, Phase.DRAINING):
        return SERVING_S
    return PATIENCE_S.get(phase, _OTHERS_S)
