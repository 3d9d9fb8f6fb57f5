"""Records of several logs in one order: what a search finds, or all that is there and comes."""

from __future__ import annotations

import contextlib
import heapq
import time
from collections.abc import Iterator, Sequence

import click

from panel.commands._logsources import Sources
from panel.commands._logwindow import Times
from panel.commands._sourcelog import Paths, SourceLog
from panel.domain.events import Gang
from panel.logs.files import ReplacedError
from panel.logs.merge import merge, place
from panel.logs.query import Filter, Query
from panel.logs.records import Record
from panel.logs.search import Search
from panel.supervisor.evidence import EventReader

_PAUSE_S = 0.1

Found = tuple[Record, bool]
"""A record, and whether it is a hit rather than a neighbour of one."""


def searched(paths: Sequence[Paths], query: Query, window: Times, around: int) -> Iterator[Found]:
    """Yield what worker processes find, with up to `around` lines around each of it."""
    with contextlib.ExitStack() as stack:
        logs = [stack.enter_context(SourceLog(found)) for found in paths]
        known = [log.searched() for log in logs]
        search = stack.enter_context(Search(known, query))
        streams = []
        for number, log in enumerate(logs):
            span = window.span(log.arrivals, known[number].size)
            streams.append(log.found(search, number, known[number], span, around))
        yield from heapq.merge(*streams, key=lambda found: place(found[0]))


def read(sources: Sources, query: Query, window: Times, follow: bool) -> Iterator[Iterator[Found]]:
    """Yield what is there, then with `follow` what is new each time, until the gang is down."""
    events = EventReader(sources.folder) if sources.folder else None
    wants = Filter(query).wants
    logs: dict[str, SourceLog] = {}

    def wanted(streams: list[Iterator[Record]]) -> Iterator[Found]:
        for record in merge(streams):
            in_time = window.since <= record.t <= window.until
            if in_time and wants(record.line, record.level, record.rank):
                yield record, True

    with contextlib.ExitStack() as stack:
        while True:
            over = not follow or any(
                isinstance(event, Gang) and event.state in ("down", "helper_died")
                for event in (events.read() if events else ())
            )
            for found in sources.find():
                if found.source not in logs:
                    logs[found.source] = stack.enter_context(SourceLog(found))
            yield wanted([_news(log) for log in logs.values()])
            if over:
                yield wanted([iter(log.rest()) for log in logs.values()])
                return
            time.sleep(_PAUSE_S)


def _news(log: SourceLog) -> Iterator[Record]:
    """Yield the new records of a log; one that was replaced begins again."""
    try:
        yield from log.records()
    except ReplacedError as error:
        click.echo(f"moepanel: {error}", err=True)
        log.reopen()
