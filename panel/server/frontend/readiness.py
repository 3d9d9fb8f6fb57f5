"""What the heartbeats say about readiness: which ranks are late, and where they stand."""

from __future__ import annotations

from collections.abc import Sequence

import msgspec

from panel.server.heartbeat import Beat
from panel.server.phases import Phase

FRESH_SECONDS = 3.0
"""A rank whose last beat is older does not count as serving."""


class RankState(msgspec.Struct, frozen=True):
    """One rank, as its last beat shows it."""

    rank: int
    phase: Phase
    pid: int
    step: int
    age: float | None
    """Seconds since the last beat; None before the first."""
    done: int
    total: int
    late: bool
    """Not serving, or silent for too long."""


def rank_states(beats: Sequence[Beat], now_ns: int) -> list[RankState]:
    """Return the state of every rank at `now_ns` (CLOCK_MONOTONIC)."""
    return [_state(rank, beat, now_ns) for rank, beat in enumerate(beats)]


def _state(rank: int, beat: Beat, now_ns: int) -> RankState:
    age = round(beat.age(now_ns), 3) if beat.mono_ns else None
    late = beat.phase is not Phase.SERVING or age is None or age > FRESH_SECONDS
    return RankState(rank, beat.phase, beat.pid, beat.step, age, beat.done, beat.total, late)


def describe(states: Sequence[RankState]) -> str:
    """Return the late ranks in words: `weights: ranks 0 1 2; silent for 4.1 s: rank 3`."""
    groups: dict[str, list[int]] = {}
    for state in states:
        if not state.late:
            continue
        if state.age is None:
            words = "not started"
        elif state.age > FRESH_SECONDS:
            words = f"silent for {state.age:.1f} s in {state.phase}"
        else:
            words = str(state.phase)
        groups.setdefault(words, []).append(state.rank)
    return "; ".join(
        f"{words}: {'rank' if len(ranks) == 1 else 'ranks'} {' '.join(map(str, ranks))}"
        for words, ranks in groups.items()
    )
