"""`moepanel logs`"""

from __future__ import annotations

import re
import sys
import time
from collections.abc import Callable, Iterator

import click
import msgspec

from panel.commands._launches import evidence_numbers, pick
from panel.commands._options import json_option
from panel.commands._sourcelog import SourceLog
from panel.config.home import find_home
from panel.domain.errors import NotFoundError
from panel.domain.events import Gang
from panel.domain.redact import redact
from panel.logs.merge import merge
from panel.logs.records import Level, Record, rank_of
from panel.supervisor.evidence import EventReader, Folder

_PAUSE_S = 0.1


class LogLine(msgspec.Struct, frozen=True, kw_only=True):
    """A record in JSON; the text is redacted."""

    t: float
    source: str
    rank: int | None
    level: str
    phase: str | None
    offset: int
    text: str


def _pattern(
    _ctx: click.Context, _param: click.Parameter, text: str | None
) -> re.Pattern[str] | None:
    try:
        return None if text is None else re.compile(text)
    except re.error as error:
        raise click.BadParameter(f"{text!r} is no regular expression: {error}") from None


@click.command()
@click.option("--rank", "ranks", type=int, multiple=True, metavar="N", help="Only this rank.")
@click.option("--source", "names", multiple=True, metavar="NAME", help="Only this source.")
@click.option("--launch", default=-1, metavar="ID", help="Which launch; -1 is the last.")
@click.option("--grep", "pattern", callback=_pattern, metavar="RE", help="Lines that match.")
@click.option("--invert", is_flag=True, help="Lines that do not match.")
@click.option(
    "--level",
    type=click.Choice([level.name.lower() for level in Level]),
    default="debug",
    help="Least severe line.",
)
@click.option("--follow", "-f", is_flag=True, help="Until the launch has ended.")
@json_option
def command(
    ranks: tuple[int, ...],
    names: tuple[str, ...],
    launch: int,
    pattern: re.Pattern[str] | None,
    invert: bool,
    level: str,
    follow: bool,
    as_json: bool,
) -> None:
    """Print the logs of a launch, merged by arrival.

    Reads the evidence folder, also without a supervisor. Secrets are masked.
    """
    home = find_home()
    number = pick(launch, evidence_numbers(home.launches))
    folder = Folder(home.launch(number))

    def wanted(source: str) -> bool:
        return not (ranks or names) or source in names or rank_of(source) in ranks

    sources = [source for source in folder.sources() if wanted(source)]
    if not sources and not follow:
        raise NotFoundError(
            f"launch #{number} has no such log", f"it has: {', '.join(folder.sources()) or 'none'}"
        )
    show = _json_line if as_json else _text_line(sources)
    # click.echo would flush each line, and sys.stdout refuse what its locale does not have.
    stdout = sys.stdout.buffer
    least = Level[level.upper()]
    for records in _passes(folder, wanted, follow):
        for record in records:
            found = pattern is None or bool(pattern.search(record.line)) is not invert
            if record.level >= least and found:
                stdout.write(show(record).encode())
        stdout.flush()


def _passes(
    folder: Folder, wanted: Callable[[str], bool], follow: bool
) -> Iterator[Iterator[Record]]:
    """Yield what is there, then what is new each time, until the gang is down."""
    events = EventReader(folder)
    logs: dict[str, SourceLog] = {}
    while True:
        over = not follow or any(
            isinstance(event, Gang) and event.state in ("down", "helper_died")
            for event in events.read()
        )
        for source in folder.sources():
            if wanted(source) and source not in logs:
                logs[source] = SourceLog(folder, source)
        yield merge([log.records() for log in logs.values()])
        if over:
            yield merge([log.rest() for log in logs.values()])
            return
        time.sleep(_PAUSE_S)


def _text_line(sources: list[str]) -> Callable[[Record], str]:
    """Return how a record is shown; where there are several sources, with its rank in front."""
    if len(sources) == 1:
        return lambda record: redact(record.line) + "\n"
    width = max((len(_label(source)) for source in sources), default=8)
    return lambda record: f"{_label(record.source):>{width}} | {redact(record.line)}\n"


def _label(source: str) -> str:
    rank = rank_of(source)
    return source if rank is None else str(rank)


def _json_line(record: Record) -> str:
    line = LogLine(
        t=record.t,
        source=record.source,
        rank=record.rank,
        level=record.level.name.lower(),
        phase=record.phase,
        offset=record.offset,
        text=redact(record.text),
    )
    return msgspec.json.encode(line).decode() + "\n"
