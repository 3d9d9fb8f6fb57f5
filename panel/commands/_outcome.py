"""What `up` and `relaunch` print."""

from __future__ import annotations

import click
import msgspec

from panel.commands._failure import failure
from panel.commands._options import print_json
from panel.commands._socket import Client
from panel.commands._wait import serving_or_ended, wait_for
from panel.domain.errors import PanelError
from panel.domain.snapshot import LaunchView
from panel.domain.states import LaunchState, ProcessState
from panel.domain.verdict import Verdict
from panel.domain.wire import Accepted
from panel.widgets.words import span_of


class RankOutcome(msgspec.Struct, frozen=True, kw_only=True):
    """Where a rank stands."""

    rank: int
    pid: int
    state: ProcessState
    phase: str


class Outcome(msgspec.Struct, frozen=True, kw_only=True):
    """How far a launch came while the command waited."""

    launch: int
    state: LaunchState
    ready: bool
    ready_s: float | None
    url: str
    ranks: tuple[RankOutcome, ...]
    verdict: Verdict | None


def outcome(launch: LaunchView) -> Outcome:
    """Return what is told of a launch in JSON."""
    return Outcome(
        launch=launch.id,
        state=launch.state,
        ready=launch.state is LaunchState.SERVING,
        ready_s=launch.ready_s,
        url=launch.url,
        ranks=tuple(
            RankOutcome(rank=rank.rank, pid=rank.pid, state=rank.state, phase=rank.phase)
            for rank in launch.ranks
            if rank.rank is not None
        ),
        verdict=launch.verdict,
    )


def report(
    client: Client, accepted: Accepted, *, wait: bool, seconds: float | None, as_json: bool
) -> None:
    """Tell what became of an accepted launch; raises `PanelError` where it does not serve."""
    number = accepted.launch
    if number is None:
        raise PanelError("the supervisor names no launch", "moepanel status")
    if not wait:
        if as_json:
            print_json(accepted)
        else:
            click.echo(f"#{number} launching; moepanel status shows how far it is")
        return
    launch = wait_for(client, number, serving_or_ended, seconds)
    serving = launch.state is LaunchState.SERVING
    if as_json:
        print_json(outcome(launch))
    elif serving:
        ready = span_of(launch.ready_s or launch.t)
        click.echo(f"#{number} serving after {ready} at {launch.url}, {len(launch.ranks)} ranks")
    else:
        for line in failure(launch):
            click.echo(line)
    if not serving:
        headline = f": {launch.verdict.headline}" if launch.verdict and as_json else ""
        stopped = launch.state is LaunchState.STOPPED
        how = "was stopped before it served" if stopped else f"{launch.state}{headline}"
        raise PanelError(f"launch #{number} {how}", f"moepanel logs --launch {number}")
