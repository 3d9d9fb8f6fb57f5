"""Which expert goes where when the places of a layer's experts change."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Moves:
    """The moves of one layer, alike for all ranks; slots are numbered over all groups."""

    local: dict[int, int]
    """Slot to the slot of the same group that its new expert comes from."""
    remote: dict[int, int]
    """Slot to the slot of another group that its new expert comes from."""
    rounds: tuple[dict[int, int], ...]
    """In each round every group hands out at most one slot: group to slot."""


def plan_moves(old: Sequence[int], new: Sequence[int], groups: int) -> Moves:
    """Return how the slots' experts become `new`; every expert has a slot in both."""
    size = len(old) // groups
    sources: dict[int, list[int]] = {}
    for slot, expert in enumerate(old):
        sources.setdefault(expert, []).append(slot)
    local: dict[int, int] = {}
    remote: dict[int, int] = {}
    outgoing: list[list[int]] = [[] for _ in range(groups)]
    for slot, expert in enumerate(new):
        if old[slot] == expert:
            continue
        at_home = [source for source in sources[expert] if source // size == slot // size]
        if at_home:
            local[slot] = at_home[0]
            continue
        source = min(sources[expert], key=lambda source: len(outgoing[source // size]))
        remote[slot] = source
        if source not in outgoing[source // size]:
            outgoing[source // size].append(source)
    count = max(map(len, outgoing), default=0)
    rounds = tuple(
        {group: slots[number] for group, slots in enumerate(outgoing) if number < len(slots)}
        for number in range(count)
    )
    return Moves(local, remote, rounds)
