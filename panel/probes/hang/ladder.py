"""The steps of looking at a hang, from the cheapest to the last; then one stops the gang. Pure."""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple

from panel.domain.hang import Rung, Step

AUTOMATIC: tuple[Step, ...] = ("look", "ras", "stacks")


class Means(NamedTuple):
    """Why a step cannot be done for this launch; empty where it can."""

    ras: str = ""
    stacks: str = ""
    flight: str = ""
    core: str = ""


class Outcome(NamedTuple):
    """What a step found."""

    result: str
    file: str = ""


_RUNGS: tuple[tuple[Step, str, str], ...] = (
    ("look", "beats, GPU load and power of every rank", "nothing"),
    ("ras", "ask NCCL twice, 5 s apart, which rank has entered what", "nothing"),
    ("stacks", "stacks of all ranks, the odd one first", "pauses each rank for 20 ms"),
    ("flight", "torch's flight recorder of every rank", "nothing"),
    (
        "core",
        "the CUDA kernels of the odd rank",
        "freezes that rank for minutes, gigabytes of disk",
    ),
)


def plan(means: Means, done: Mapping[Step, Outcome]) -> tuple[Rung, ...]:
    """Return all rungs as they stand."""
    return tuple(
        Rung(
            step=step,
            number=number,
            title=title,
            cost=cost,
            automatic=step in AUTOMATIC,
            refused=getattr(means, step, ""),
            done=step in done,
            result=done[step].result if step in done else "",
            file=done[step].file if step in done else "",
        )
        for number, (step, title, cost) in enumerate(_RUNGS)
    )


def next_rung(rungs: tuple[Rung, ...], *, automatic: bool) -> Rung | None:
    """Return the lowest rung that is left; with `automatic` only of those that need no asking."""
    for rung in rungs:
        if rung.done or rung.refused or (automatic and not rung.automatic):
            continue
        return rung
    return None
