"""Which rank did not enter what the others are in. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import NamedTuple

from panel.probes.collectives.flight import Entered


class Laggard(NamedTuple):
    """A rank that others wait for."""

    rank: int
    group: str
    operation: str
    """What it did not enter."""
    missed: int
    """Number of that collective in its group."""
    last: int
    """Number of the last one that it entered."""


def flight_laggards(newest: Iterable[Entered]) -> tuple[Laggard, ...]:
    """Compare the newest collectives of all ranks in each process group."""
    groups: dict[str, list[Entered]] = {}
    for each in newest:
        groups.setdefault(each.group, []).append(each)
    found = []
    for group, members in groups.items():
        ahead = max(members, key=lambda each: each.sequence)
        for member in sorted(members, key=lambda each: each.rank):
            if member.sequence < ahead.sequence and ahead.state != "completed":
                missed = member.sequence + 1
                found.append(Laggard(member.rank, group, ahead.operation, missed, member.sequence))
    return tuple(found)


def flight_mismatches(newest: Iterable[Entered]) -> tuple[str, ...]:
    """Return where ranks entered different collectives under the same number."""
    places: dict[tuple[str, int], dict[str, list[int]]] = {}
    for each in newest:
        what = f"{each.operation} {each.sizes}"
        ranks = places.setdefault((each.group, each.sequence), {})
        ranks.setdefault(what, []).append(each.rank)
    return tuple(
        f"collective {sequence} of group {group} is "
        + ", ".join(f"{what} on {_ranks(ranks)}" for what, ranks in sorted(kinds.items()))
        for (group, sequence), kinds in sorted(places.items())
        if len(kinds) > 1
    )


def count_laggards(
    counts: Mapping[str, Mapping[int, Mapping[str, int]]],
) -> tuple[Laggard, ...]:
    """Compare how often each rank has entered each operation: communicator → rank → operation."""
    found = []
    for group, ranks in counts.items():
        operations = sorted({name for entered in ranks.values() for name in entered})
        for operation in operations:
            most = max(entered.get(operation, 0) for entered in ranks.values())
            for rank, entered in sorted(ranks.items()):
                count = entered.get(operation, 0)
                if count < most:
                    found.append(Laggard(rank, group, operation, count + 1, count))
    return tuple(found)


def words(laggards: Iterable[Laggard]) -> str:
    """Return who never entered what, in one sentence; empty where nobody lags."""
    return "; ".join(
        f"rank {each.rank} never entered {each.operation} {each.missed} of group {each.group}"
        for each in laggards
    )


def _ranks(ranks: list[int]) -> str:
    return f"rank {ranks[0]}" if len(ranks) == 1 else f"ranks {', '.join(map(str, sorted(ranks)))}"
