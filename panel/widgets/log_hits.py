"""What a search found in all sources, by place. Pure; 16 bytes a hit."""

from __future__ import annotations

from array import array
from bisect import bisect_left, bisect_right
from collections.abc import Iterator
from dataclasses import dataclass, field

from panel.domain.wire import Found
from panel.widgets.log_model import Place

MOST = 1_000_000
"""Hits of a source that are listed; older ones make way for what is found later."""


@dataclass(slots=True)
class _Listed:
    offsets: array[int] = field(default_factory=lambda: array("Q"))
    times: array[float] = field(default_factory=lambda: array("d"))
    end: int = 0
    """Up to where the log was searched."""

    def bisect(self, source: str, place: Place, *, after: bool) -> int:
        """Return how many hits lie before a place; with `after` those at it count too."""
        t, other, offset = place
        low, high = bisect_left(self.times, t), bisect_right(self.times, t)
        if source != other:
            return high if source < other else low
        return (bisect_right if after else bisect_left)(self.offsets, offset, low, high)


@dataclass(slots=True)
class Hits:
    """Grows as pieces come in: at first older and older ones, then what the logs grow by."""

    count: int = 0
    """All that were found, listed or not."""
    left: int | None = None
    """Bytes still to be searched; None before anything was."""
    _sources: dict[str, _Listed] = field(default_factory=dict)

    def take(self, found: Found) -> None:
        """Add what one piece holds."""
        self.count += found.count
        self.left = found.left
        if not found.source:
            return
        listed = self._sources.setdefault(found.source, _Listed())
        offsets = array("Q", found.offsets)
        times = array("d")
        for t, many in found.times:
            times.extend([t] * many)
        if found.start >= listed.end:
            listed.offsets.extend(offsets)
            listed.times.extend(times)
        else:
            listed.offsets = offsets + listed.offsets
            listed.times = times + listed.times
        listed.end = max(listed.end, found.end)
        if len(listed.offsets) > MOST + MOST // 10:
            del listed.offsets[:-MOST], listed.times[:-MOST]

    def clear(self) -> None:
        """Forget all, as at the beginning."""
        self.count, self.left = 0, None
        self._sources.clear()

    @property
    def listed(self) -> int:
        """How many are listed."""
        return sum(len(listed.offsets) for listed in self._sources.values())

    def before(self, place: Place | None, many: int = 1) -> list[Place]:
        """Return the last hits before a place, or of all, in order."""
        found: list[Place] = []
        for source, listed in self._sources.items():
            end = len(listed.offsets)
            if place is not None:
                end = listed.bisect(source, place, after=False)
            found += self._places(source, max(end - many, 0), end)
        return sorted(found)[-many:]

    def after(self, place: Place | None, many: int = 1) -> list[Place]:
        """Return the first hits behind a place, or of all, in order."""
        found: list[Place] = []
        for source, listed in self._sources.items():
            start = listed.bisect(source, place, after=True) if place is not None else 0
            found += self._places(source, start, min(start + many, len(listed.offsets)))
        return sorted(found)[:many]

    def number(self, place: Place) -> int:
        """Return which of the listed hits stands at a place, from 1; 0 where none does."""
        _, source, offset = place
        listed = self._sources.get(source)
        if listed is None:
            return 0
        at = bisect_left(listed.offsets, offset)
        if at == len(listed.offsets) or listed.offsets[at] != offset:
            return 0
        return 1 + sum(
            other.bisect(name, place, after=False) for name, other in self._sources.items()
        )

    def histogram(self, end: float, cells: int) -> list[int]:
        """Return how many hits fall into each of `cells` equal parts of the time up to `end`."""
        counts = [0] * cells
        for listed in self._sources.values():
            at = 0
            for cell in range(cells):
                to = bisect_left(listed.times, end * (cell + 1) / cells, at)
                if cell == cells - 1:
                    to = len(listed.times)
                counts[cell] += to - at
                at = to
        return counts

    def _places(self, source: str, start: int, end: int) -> Iterator[Place]:
        listed = self._sources[source]
        for at in range(start, end):
            yield listed.times[at], source, listed.offsets[at]
