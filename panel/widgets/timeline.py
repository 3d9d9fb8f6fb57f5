"""Figures over time in as many columns as there is room for. Pure."""

from __future__ import annotations

from collections.abc import Sequence

from panel.domain.series import Series

Values = tuple[float | None, ...]


def pool(series: Series, name: str, columns: int, seconds: float) -> Values:
    """Return the means of the last `seconds` in `columns` equal spans; None where nothing is known.

    The spans begin at fixed times, so that what has been shown moves but does not change.
    """
    values = series.values.get(name)
    if not values or not columns:
        return (None,) * columns
    span = seconds / columns
    first = int(series.times[-1] // span) - columns + 1
    sums, counts = [0.0] * columns, [0] * columns
    for t, value in zip(series.times, values, strict=True):
        column = int(t // span) - first
        if value is not None and column >= 0:
            sums[column] += value
            counts[column] += 1
    return tuple(
        total / count if count else None for total, count in zip(sums, counts, strict=True)
    )


def total(rows: Sequence[Values]) -> Values:
    """Return the sums of the figures known in each column."""
    return tuple(_sum(column) for column in zip(*rows, strict=True))


def newest(series: Series, name: str) -> float | None:
    """Return the last figure, None where it is not known."""
    values = series.values.get(name)
    return values[-1] if values else None


def _sum(column: Values) -> float | None:
    known = [value for value in column if value is not None]
    return sum(known) if known else None
