"""A failed launch in words: who died first, how, and the last traceback."""

from __future__ import annotations

import math
from collections.abc import Iterator

from panel.domain.snapshot import LaunchView, ProcessView
from panel.domain.states import ProcessState
from panel.domain.verdict import Verdict
from panel.widgets.advice_words import RELAUNCH, advice_words, kind_of
from panel.widgets.words import span_of


def failure(launch: LaunchView) -> Iterator[str]:
    """Yield the lines that tell of a failed launch; none where there is no verdict yet."""
    verdict = launch.verdict
    if verdict is None:
        return
    yield verdict.told
    first = _first(launch, verdict)
    if first is not None and first.exit is not None:
        name = first.source if first.rank is None else f"rank {first.rank}"
        when = f"{span_of(first.exit.t)} after launch"
        yield f"{name}, pid {first.pid}: {first.exit.words}, {when}"
    for evidence in verdict.evidence:
        # Python underlines the failing part of a line: without its place it says nothing.
        if evidence.text.strip(" ^~"):
            yield f"  {evidence.text}"
    for advice in verdict.advice:
        yield f"{kind_of(advice)}: {advice_words(advice, RELAUNCH)}"


def _first(launch: LaunchView, verdict: Verdict) -> ProcessView | None:
    roots = verdict.root_ranks
    if isinstance(roots, tuple) and roots:
        return next((rank for rank in launch.ranks if rank.rank == roots[0]), None)
    failed = [each for each in launch.processes if each.state is ProcessState.FAILED]
    return min(failed, key=lambda each: each.exit.t if each.exit else math.inf, default=None)
