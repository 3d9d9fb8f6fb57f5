"""Step 0: what beats, GPUs and the ranks' own ledger say of a hang. Pure."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from panel.domain.gpu import Gpu

_BUSY = 95
_IDLE_POWER = 0.4
"""Share of the limit: a GPU that computes takes more, one that spins in a collective does not."""


class Standing(NamedTuple):
    """Where a rank stands in the collectives of our own engine."""

    rank: int
    entered: int
    """Meetings that it has come to."""
    waiting: bool
    """It has been waiting in the last one for more than a moment."""


def laggards(standings: Sequence[Standing]) -> tuple[int, ...]:
    """Return the ranks that the others wait for; none where all came to the same meeting."""
    most = max((each.entered for each in standings), default=0)
    if not any(each.waiting for each in standings if each.entered == most):
        return ()
    return tuple(each.rank for each in standings if each.entered < most)


def ledger_words(standings: Sequence[Standing]) -> str:
    """Return who never entered what, in one sentence."""
    if not standings:
        return "the ranks have no ledger of collectives"
    late = laggards(standings)
    most = max(each.entered for each in standings)
    if not late:
        if all(each.waiting for each in standings):
            return f"all ranks wait in meeting {most}: at different places, or a wake-up was lost"
        return f"all ranks have entered meeting {most}; nobody is behind"
    first = next(each for each in standings if each.rank == late[0])
    verb = "waits in" if first.waiting else "left"
    who = f"rank {late[0]}" if len(late) == 1 else f"ranks {', '.join(map(str, late))}"
    return f"{who} never entered meeting {most}; rank {late[0]} {verb} meeting {first.entered}"


def gpu_words(gpus: Sequence[Gpu]) -> str:
    """Return which GPUs spin in a collective and which do nothing, in one sentence."""
    spinning, idle = [], []
    for gpu in gpus:
        sample = gpu.sample
        if gpu.rank is None or sample.util is None:
            continue
        low = bool(
            sample.power and sample.power_limit and sample.power < _IDLE_POWER * sample.power_limit
        )
        if sample.util >= _BUSY and low:
            spinning.append(gpu.rank)
        elif sample.util == 0:
            idle.append(gpu.rank)
    words = []
    if spinning:
        words.append(f"GPUs of ranks {_list(spinning)} spin at low power, as in a collective")
    if idle:
        words.append(f"those of ranks {_list(idle)} do nothing")
    return ", ".join(words)


def _list(ranks: list[int]) -> str:
    return ", ".join(map(str, sorted(ranks)))
