"""What is read for a verdict besides itself: the ends of the logs, the place of its evidence, and
the launches that it is measured against. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import NamedTuple

from panel.domain.notes import Note
from panel.domain.plan import Change, changes
from panel.domain.snapshot import LaunchView
from panel.domain.verdict import Verdict
from panel.domain.wire import LaunchRecord, LogWindow
from panel.logs.decode import decode
from panel.logs.grammars import detect
from panel.logs.merge import Arrivals
from panel.logs.records import Level, Record, RecordReader
from panel.triage.trace import Link, LogLine, TraceReader
from panel.widgets.node_rows import first_failed


class Spot(NamedTuple):
    """A place in a log."""

    source: str
    offset: int


class Findings(NamedTuple):
    """Empty until it was read."""

    tails: tuple[Record, ...] = ()
    """The ends of all logs."""
    around: tuple[Record, ...] = ()
    """The log of the root around the spot."""
    trace: Link | None = None
    """The exception at the spot."""
    code: Mapping[int, str] = {}
    """Lines around the last own frame of the trace, by number, where its file is at hand."""
    record: LaunchRecord | None = None
    """The launch's own row of the ledger."""
    good: LaunchRecord | None = None
    """The last good launch before it."""
    notes: tuple[Note, ...] = ()
    """What operators wrote about the launch."""

    @property
    def differences(self) -> tuple[Change, ...]:
        """What differs from the last good launch: flags, then versions, then environment."""
        if self.record is None or self.good is None:
            return ()
        return (
            *changes(self.good.flags, self.record.flags),
            *changes(self.good.versions, self.record.versions),
            *changes(self.good.env, self.record.env),
        )


def spot_of(launch: LaunchView, verdict: Verdict) -> Spot | None:
    """Return where a log speaks for the verdict: its first line of evidence in one, else the end
    of the log of a root, else that of the process that ended first."""
    for line in verdict.evidence:
        if line.source in launch.log_sizes:
            return Spot(line.source, line.offset)
    roots = verdict.root_ranks
    blamed = [one for one in launch.ranks if roots == "all" or one.rank in roots]
    for process in (*blamed, first_failed(launch)):
        if process is not None and process.source in launch.log_sizes:
            return Spot(process.source, launch.log_sizes[process.source])
    return None


def records_of(window: LogWindow) -> tuple[Record, ...]:
    """Return the records of a window, whatever engine wrote it."""
    lines = decode(window.text.encode(), window.offset)
    dialect = detect(line.text for line in lines)
    return tuple(RecordReader(window.source, Arrivals(window.times), dialect).read(lines))


def trace_at(records: Iterable[Record], offset: int) -> Link | None:
    """Return the exception whose lines include the one at `offset`."""
    by_voice: dict[tuple[int | None, int | None], list[Record]] = {}
    for record in records:
        by_voice.setdefault((record.rank, record.pid), []).append(record)
    for voice in by_voice.values():
        for link in links(voice):
            if link.lines[0].offset <= offset <= link.lines[-1].offset:
                return link
    return None


def links(records: Iterable[Record]) -> list[Link]:
    """Return the exceptions that one speaker's records tell of, causes before their effects."""
    reader = TraceReader()
    found: list[Link] = []
    for number, record in enumerate(records, 1):
        if record.level < Level.ERROR and not reader.framing:
            for chain in reader.end():
                found += chain
        for chain in reader.feed(LogLine(record.offset, number, record.text)):
            found += chain
    for chain in reader.end():
        found += chain
    return found


def good_before(records: Iterable[LaunchRecord], launch: LaunchView) -> LaunchRecord | None:
    """Return the newest earlier launch of the same profile that got ready and did not fail."""
    return next(
        (
            record
            for record in records
            if record.id < launch.id
            and record.request.profile == launch.request.profile
            and record.ready_s is not None
            and not record.state.failed
        ),
        None,
    )
