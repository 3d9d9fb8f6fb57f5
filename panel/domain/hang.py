"""What is done about a gang that stands still, step by step."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Literal

import msgspec

Step = Literal["look", "ras", "stacks", "flight", "core"]


class Rung(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """One step of the ladder."""

    step: Step
    number: int
    title: str
    cost: str
    """What it does to a healthy engine."""
    automatic: bool = False
    """Done without asking when a hang is suspected."""
    refused: str = ""
    """Why it cannot be done here; empty where it can."""
    done: bool = False
    result: str = ""
    """What it found, in one sentence."""
    file: str = ""
    """Name below the evidence folder of what it left."""


class Suspicion(msgspec.Struct, frozen=True, kw_only=True):
    """Why a gang is taken to be hanging."""

    since: float
    """Seconds since launch."""
    ranks: tuple[int, ...]
    """Those that have not moved; not necessarily those to blame."""
    text: str


def stopped_words(ranks: Sequence[int]) -> str:
    """Return `rank 6 is stopped (state T)`, of several `ranks 2, 5 are stopped (state T)`."""
    names = ", ".join(str(rank) for rank in ranks)
    return (
        f"ranks {names} are stopped (state T)"
        if len(ranks) > 1
        else f"rank {names} is stopped (state T)"
    )


class HangView(msgspec.Struct, frozen=True, kw_only=True):
    """The ladder of one launch."""

    launch: int
    suspicion: Suspicion | None
    rungs: tuple[Rung, ...]
