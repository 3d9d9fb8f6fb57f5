"""For whom the ranks wait, look by look. Pure."""

from __future__ import annotations

from collections import Counter, deque
from collections.abc import Sequence

from panel.probes.hang.look import Standing, laggards

LEADER = 0
LOOKS = 30
ENOUGH = 5
"""Looks from which on a share says anything."""
OLD_S = 60.0


class LateRanks:
    """Of one launch whose engine counts its meetings."""

    def __init__(self) -> None:
        self._looks: deque[tuple[float, tuple[int, ...]]] = deque(maxlen=LOOKS)

    def look(self, t: float, standings: Sequence[Standing], *, idle: bool) -> None:
        """Take in where the ranks stand at `t`; `idle`: no request runs, so that all wait for the
        leader, which waits for requests."""
        if standings:
            late = [rank for rank in laggards(standings) if not (idle and rank == LEADER)]
            self._looks.append((t, tuple(late)))

    def shares(self, t: float) -> dict[int, float]:
        """Return the share of the looks of the last minute at which the others waited, by rank."""
        looks = [late for at, late in self._looks if t - at <= OLD_S]
        if len(looks) < ENOUGH:
            return {}
        counts = Counter(rank for late in looks for rank in late)
        return {rank: count / len(looks) for rank, count in counts.items()}
