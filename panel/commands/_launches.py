"""Which launch a number on the command line means."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from panel.domain.errors import NotFoundError


def pick(number: int, known: Sequence[int]) -> int:
    """Return the launch: `number` itself, or counted from the end where negative (-1 the last).

    `known` are all launches, ascending. Raises `NotFoundError`.
    """
    if not known:
        raise NotFoundError("no launch yet", "moepanel up makes one")
    if number in known:
        return number
    if -len(known) <= number < 0:
        return known[number]
    raise NotFoundError(f"no launch {number}", f"the last one is #{known[-1]}: moepanel history")


def evidence_numbers(launches: Path) -> list[int]:
    """Return the launches that have an evidence folder, ascending."""
    if not launches.is_dir():
        return []
    return sorted(int(path.name) for path in launches.iterdir() if path.name.isdecimal())
