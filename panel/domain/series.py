"""Named figures over time."""

from __future__ import annotations

import msgspec


class Series(msgspec.Struct, frozen=True, kw_only=True):
    """Some figures of one launch, side by side: `values[name][i]` is of `times[i]`.

    Names: `engine.tok_s`, `gpu3.power`, … None: not known at that moment.
    """

    times: tuple[float, ...] = ()
    """Seconds since launch, growing."""
    values: dict[str, tuple[float | None, ...]] = {}

    def last(self, count: int) -> Series:
        """Return the newest `count` moments."""
        first = max(0, len(self.times) - count)
        return Series(
            times=self.times[first:],
            values={name: column[first:] for name, column in self.values.items()},
        )
