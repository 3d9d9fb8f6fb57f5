"""Triage of one launch: fed with events and bytes as they come, asked for the verdict at any time.

Live and offline are the same: offline the whole past is fed at once.
"""

from __future__ import annotations

from collections.abc import Iterable

import msgspec

from panel.domain.events import Event, Kernel
from panel.domain.hang import Suspicion
from panel.domain.verdict import Verdict
from panel.engines import ENGINES
from panel.triage.conclude import conclude
from panel.triage.facts import Facts, world_of
from panel.triage.gang import GangState
from panel.triage.mark import Mark
from panel.triage.scene import Beat, ExitCodes, Scene
from panel.triage.signature import Catalog, load
from panel.triage.source import SourceReader


class Triage:
    """The evidence of one launch, growing."""

    def __init__(
        self, facts: Facts, *, catalog: Catalog | None = None, codes: ExitCodes | None = None
    ) -> None:
        """`codes`: of the engine, where it is another than the one of that name known here."""
        self.facts = facts
        self.gang = GangState()
        self.sources: dict[str, SourceReader] = {}
        self._catalog = catalog or load()
        self._kernel = SourceReader("kernel log", self._catalog)
        self._kernel_ranks: dict[int, int] = {}
        """By offset of the line: whom it named when it came."""
        self._codes = codes
        self._flags = facts.flags()

    def see(self, event: Event) -> None:
        """Take in an event."""
        self.gang.see(event)
        if isinstance(event, Kernel):
            if event.rank is not None:
                self._kernel_ranks[self._kernel.size] = event.rank
            self._kernel.feed(event.text.encode() + b"\n", [(event.t, self._kernel.size)])

    def read(self, source: str, chunk: bytes, times: Iterable[tuple[float, int]] = ()) -> None:
        """Take in the next bytes of a log, and when bytes of it arrived."""
        if source not in self.sources:
            self.sources[source] = SourceReader(source, self._catalog)
        self.sources[source].feed(chunk, times)

    def end(self) -> None:
        """No more bytes will come: the last lines need no newline."""
        for reader in self.sources.values():
            reader.end()

    def verdict(
        self, t: float | None = None, beats: Iterable[Beat] = (), missing: Iterable[str] = ()
    ) -> Verdict:
        """Return the verdict on what is known, at `t` seconds since launch."""
        return conclude(self.scene(t, tuple(beats), tuple(missing)))

    def scene(
        self, t: float | None = None, beats: tuple[Beat, ...] = (), missing: tuple[str, ...] = ()
    ) -> Scene:
        """Return all evidence side by side."""
        readers = [self._kernel, *self.sources.values()]
        lore = [reader.lines.lore for reader in readers]
        engine = self.facts.engine or next((each.engine for each in lore if each.engine), "")
        printed = {name: text for each in lore for name, text in each.arguments.items()}
        spoke = frozenset(rank for each in lore for rank in each.spoke)
        pids = {pid: rank for each in lore for pid, rank in each.pids.items()}
        world = (
            self.facts.world_size
            or world_of(self._flags)
            or max((each.world for each in lore), default=0)
            or world_of(printed)
            or max((*spoke, *filter(None, self.facts.sources.values())), default=-1) + 1
        )
        self.gang.settle_ranks(world, pids)
        last = max((reader.last_t for reader in readers), default=0.0)
        pids |= {pid: each.rank for pid, each in self.gang.members.items() if each.rank is not None}
        marks = [_placed(mark, pids) for each in readers for mark in self._in_time(each)]
        served = [self._shifted(each, at) for each in readers if (at := each.serving)]
        return Scene(
            catalog=self._catalog,
            engine=engine,
            version=self.facts.version or next((each.version for each in lore if each.version), ""),
            flags=self._flags or printed,
            world=world,
            gang=self.gang,
            marks=tuple(sorted(marks, key=_order)),
            spoke=spoke,
            phases=_phases(self.sources.values()),
            serving=max(served, default=None),
            last_byte=last,
            last_line=max(readers[1:], key=lambda each: each.last_t, default=readers[0]).last_line,
            t=max(self.gang.last_t, last) if t is None else t,
            timed=all(reader.timed for reader in self.sources.values()) and bool(self.sources),
            tails={name: reader.tail for name, reader in self.sources.items()},
            pids=pids,
            device=next((each.device for each in lore if each.device), ""),
            buses={bus: rank for each in lore for bus, rank in each.buses.items()},
            usage=frozenset(flag for each in lore for flag in each.usage),
            beats=beats,
            codes=self._codes or _codes_of(engine),
            missing=missing,
            since=self.facts.since,
        )

    def _in_time(self, reader: SourceReader) -> list[Mark]:
        ranks = self._kernel_ranks if reader is self._kernel else {}
        return [
            mark._replace(
                order=self._shifted(reader, mark.order), rank=ranks.get(mark.order[1], mark.rank)
            )
            for mark in reader.so_far()
        ]

    def _shifted(self, reader: SourceReader, order: tuple[float, int]) -> tuple[float, int]:
        """Return a place in a log as seconds since launch.

        Of a log whose arrival nobody noted there are only the times it prints: its end is taken for
        that of all other evidence.
        """
        if reader.timed or not order[0]:
            return order
        others = self.sources.values()
        known = max((each.last_t for each in others if each.timed), default=self.gang.last_t)
        printed = max((each.lines.lore.now for each in others), default=0.0)
        return (order[0] + known - printed, order[1]) if known else order


def hung_before(before: Verdict | None, suspicion: Suspicion | None) -> str:
    """Return the note on a stopped launch that hung before, by its last verdict or the suspicion
    that it was under; empty where it did not."""
    if before is not None and (before.note or before.status == "hung"):
        return before.note or f"it hung before: {before.headline}"
    return f"it seemed to hang before: {suspicion.text}" if suspicion else ""


def revise(before: Verdict | None, now: Verdict) -> Verdict | None:
    """Return `now` as the next revision, None where it says nothing new."""
    if before is None:
        return now
    if before == msgspec.structs.replace(now, t=before.t, revision=before.revision):
        return None
    return msgspec.structs.replace(now, revision=before.revision + 1)


def _codes_of(engine: str) -> ExitCodes:
    known = ENGINES.get(engine)
    return ExitCodes(known.exit_words, known.victim_codes) if known else ExitCodes({}, ())


def _placed(mark: Mark, pids: dict[int, int]) -> Mark:
    """A pid may become known as a rank's only after it spoke."""
    if mark.rank is None and mark.pid is not None and mark.pid in pids:
        return mark._replace(rank=pids[mark.pid])
    return mark


def _order(mark: Mark) -> tuple[float, str, int]:
    return mark.order[0], mark.source, mark.order[1]


def _phases(readers: Iterable[SourceReader]) -> dict[int | None, str]:
    phases: dict[int | None, str] = {}
    for reader in sorted(readers, key=lambda each: each.last_t):
        phases |= reader.lines.lore.phases.known
    return phases
