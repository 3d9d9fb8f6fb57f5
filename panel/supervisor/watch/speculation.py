"""What an engine says of its drafts: how many it takes, what they cost, if that pays. Pure."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from panel.domain.snapshot import Speculation
from panel.engines.base import MetricNames

if TYPE_CHECKING:
    from panel.supervisor.watch.metrics import Scrape

RECENT = 10
"""Scrapes whose acceptance is compared with that before them."""
_ENOUGH = 50
"""Drafts that an acceptance has to be the mean of."""
_FALLEN = 0.5
_RECOVERED = 0.8
"""Accepted tokens a draft, as a share of what they were before."""
_LEAST = 0.3
"""Accepted tokens a draft below which a fall says nothing."""


def speculation(prefix: str, before: Scrape, now: Scrape) -> Speculation | None:
    """Return the figures between two scrapes; None where the engine drafts nothing.

    `prefix` is that of the names of our own engine's samples.
    """
    values = now.values
    if not prefix or not values.get(f"{prefix}spec_drafts_total"):
        return None

    def parts(name: str) -> dict[str, float]:
        earlier = before.parts.get(f"{prefix}{name}", {})
        return {
            part: number - earlier.get(part, 0.0)
            for part, number in now.parts.get(f"{prefix}{name}", {}).items()
        }

    drafted = parts("spec_drafted_tokens_per_position_total")
    accepted = parts("spec_accepted_tokens_per_position_total")
    cycles = values.get(f"{prefix}spec_cycles_total", 0.0) - before.values.get(
        f"{prefix}spec_cycles_total", 0.0
    )
    seconds = parts("spec_seconds_total")
    return Speculation(
        drafts=int(values.get(f"{prefix}spec_draft_length", 0)),
        break_even=values.get(f"{prefix}spec_break_even_tokens"),
        accepted=tuple(
            round(accepted.get(place, 0.0) / count, 3)
            for place, count in sorted(drafted.items(), key=lambda item: int(item[0]))
            if count > 0
        ),
        cycle_ms={part: round(1e3 * s / cycles, 2) for part, s in seconds.items()}
        if cycles > 0
        else {},
        collectives=values.get(f"{prefix}step_collectives", 0.0),
        collective_ms=round(1e3 * values.get(f"{prefix}step_collective_seconds", 0.0), 2),
        simulated=values.get(f"{prefix}spec_simulated_acceptance"),
    )


class Fall:
    """Notices that acceptance falls suddenly, and when it is back."""

    def __init__(self, names: MetricNames) -> None:
        self._names = names
        self.before: float | None = None
        """Tokens a cycle before it fell; None while all is well."""

    def note(self, scrapes: Sequence[Scrape]) -> None:
        """Take in the scrapes of the last minute, oldest first."""
        if len(scrapes) <= RECENT:
            return
        turn = scrapes[-1 - RECENT]
        now = self._accepted(turn, scrapes[-1])
        then = self._accepted(scrapes[0], turn) if self.before is None else self.before - 1
        if now is None or then is None or then < _LEAST:
            return
        if now < _FALLEN * then:
            self.before = round(1 + then, 2)
        elif now > _RECOVERED * then:
            self.before = None

    def _accepted(self, before: Scrape, now: Scrape) -> float | None:
        """Return the tokens accepted of a draft, None where there are too few of them."""
        drafts, accepted = (
            now.values.get(name, 0.0) - before.values.get(name, 0.0)
            for name in (self._names.drafts, self._names.accepted)
        )
        return accepted / drafts if drafts >= _ENOUGH else None
