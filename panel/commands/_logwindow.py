"""`--since` and `--until` of `moepanel logs`: moments of a launch."""

from __future__ import annotations

import math
import re
from typing import NamedTuple

import click

from panel.domain.errors import UsageError
from panel.domain.events import Gang
from panel.logs.merge import Arrivals
from panel.supervisor.evidence import EventReader, Folder, verdict_of

_MOMENT = re.compile(r"(?P<crash>crash)?(?P<seconds>[+-]?\d+(?:\.\d+)?)?")


class Moment(NamedTuple):
    """Seconds since launch, or since the crash."""

    seconds: float
    of_crash: bool


def moment(_ctx: click.Context, _param: click.Parameter, text: str | None) -> Moment | None:
    """Read `12.5`, `crash`, `crash-10` or `crash+0.5`."""
    if text is None:
        return None
    match = _MOMENT.fullmatch(text)
    if match is None or not text:
        raise click.BadParameter(f"{text!r} is neither seconds, as 12.5, nor as crash-10")
    return Moment(float(match["seconds"] or 0), match["crash"] is not None)


class Times(NamedTuple):
    """What is wanted, in seconds since launch, ends included."""

    since: float = -math.inf
    until: float = math.inf

    def span(self, arrivals: Arrivals, size: int) -> tuple[int, int]:
        """Return the range of offsets of a log that arrived then."""
        start = 0 if self.since == -math.inf else arrivals.offset_at(self.since)
        end = arrivals.offset_at(self.until, after=True)
        if self.until == math.inf or end is None:
            end = size
        return (size if start is None else start), end


def times(since: Moment | None, until: Moment | None, folder: Folder | None) -> Times:
    """Return the window of a launch. Raises `UsageError` where there is nothing to count from."""
    if folder is None and (since or until):
        raise UsageError(
            "a single file does not say when its lines arrived",
            "--since and --until are for launches: --launch ID",
        )
    return Times(
        -math.inf if since is None else _seconds(since, folder),
        math.inf if until is None else _seconds(until, folder),
    )


def _seconds(moment: Moment, folder: Folder | None) -> float:
    if not moment.of_crash or folder is None:
        return moment.seconds
    crash = crash_time(folder)
    if crash is None:
        raise UsageError("this launch did not crash", "count from its start: --since 12.5")
    return crash + moment.seconds


def crash_time(folder: Folder) -> float | None:
    """Return when a launch began to fail, in seconds since launch; None where it did not."""
    for event in EventReader(folder).read():
        if isinstance(event, Gang) and event.state in ("failing", "refused", "helper_died"):
            return event.t
    verdict = verdict_of(folder)
    return verdict.t_first if verdict else None
