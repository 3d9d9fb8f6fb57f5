"""The memory of one GPU as a bar of letters, readable without colour."""

from __future__ import annotations

from collections.abc import Sequence

from panel.domain.plan import Memory


def letters(lines: Sequence[Memory]) -> tuple[str, ...]:
    """Return a letter for each line: the first of its name that no line before it has."""
    taken: list[str] = []
    for line in lines:
        fresh = (sign for sign in line.category if sign.isalpha() and sign.lower() not in taken)
        taken.append(next(fresh, "?").lower())
    return tuple(sign.upper() for sign in taken)


def memory_bar(lines: Sequence[Memory], total: int, width: int) -> str:
    """Return `width` cells for `total` bytes: each line's letter, dots for what is left.

    What does not fit is cut off; then the last cell is an exclamation mark.
    """
    cells, end = "", 0
    for sign, line in zip(letters(lines), lines, strict=True):
        end += line.predicted
        cells += sign * (round(end * width / total) - len(cells))
    if end > total:
        return f"{cells[: width - 1]}!"
    return cells.ljust(width, ".")
