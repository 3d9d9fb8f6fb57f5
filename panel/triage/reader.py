"""Lines of one log → marks: who said what, tracebacks put together, wrappers seen through."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import NamedTuple

from panel.logs.grammars.wrappers import Wrapper
from panel.logs.severity import Level
from panel.triage.fatal import BEGINS, FatalDump, frame_words
from panel.triage.lore import Lore
from panel.triage.mark import Mark, classify, classify_chain, phase_of_frames
from panel.triage.signature import Catalog
from panel.triage.speaker import Said, hear, pieces
from panel.triage.trace import Link, LogLine, TraceReader

_Key = tuple[int | None, int | None, str]
_IGNORED = re.compile(r"^Exception ignored in")
_NOBODY: _Key = (None, None, "")
_HEADED = ("sglang", "tensorrt")
"""Engines that print a prefix on the first line of a record only."""


class _Open(NamedTuple):
    """A traceback that is being read, and how it began."""

    trace: TraceReader
    t: float
    said: Said


class _Crash(NamedTuple):
    """The mark of a native crash, and the dump that is being read behind it."""

    mark: Mark
    dump: FatalDump

    @property
    def so_far(self) -> Mark:
        """The mark with the frame that is known by now."""
        frame = self.dump.frame
        if frame is None:
            return self.mark
        groups = {**self.mark.groups, "frame": frame_words(frame)}
        return self.mark._replace(groups=groups, lines=(*self.mark.lines, frame))


class LineReader:
    """Reads the lines of one source that are worth it, in order."""

    def __init__(self, source: str, catalog: Catalog) -> None:
        self.source = source
        self.lore = Lore(source)
        self.wrappers: tuple[Wrapper, ...] = ()
        self._catalog = catalog
        self._traces: dict[_Key, _Open] = {}
        self._crashes: dict[_Key, _Crash] = {}
        self._ignored: set[_Key] = set()
        self._last: _Key = _NOBODY

    @property
    def open(self) -> bool:
        """Whether the next line may go on with a traceback or a dump."""
        return bool(self._traces or self._crashes)

    def read(self, line: LogLine, t: float | None, hot: bool) -> Iterator[Mark]:
        """Take a physical line that arrived at `t`; yield the marks that it completes.

        Where nobody noted its arrival, the clock of the engine's own lines orders the sources.
        `hot`: some signature may match it.
        """
        for piece in pieces(line.text):
            yield from self._read(line._replace(text=piece), t, hot)

    def pending(self) -> list[Mark]:
        """Return the marks of tracebacks and dumps that may still go on."""
        crashes = [crash.so_far for crash in self._crashes.values()]
        return crashes + [
            mark
            for key, begun in self._traces.items()
            if key not in self._ignored and (chain := begun.trace.so_far())
            for mark in self._of_chain(key, begun, chain)
        ]

    def _read(self, line: LogLine, arrived: float | None, hot: bool) -> Iterator[Mark]:
        said = hear(line.text, self.wrappers)
        t = self.lore.learn(said, arrived, line.offset)
        key = self._key(said)
        text = LogLine(line.offset, line.number, said.text)
        if not said.bare:
            yield from self._end_others(said, key)
        if key in self._crashes:
            if self._crashes[key].dump.feed(text):
                return
            yield self._crashes.pop(key).so_far
        open_trace = self._traces.get(key)
        if open_trace is None:
            if not TraceReader.begins(said.text):
                if _IGNORED.match(said.text):
                    self._ignored.add(key)
                if hot:
                    yield from self._of_last_words(key, self._of_line(said, text, t))
                return
            open_trace = self._traces[key] = _Open(TraceReader(), t, said)
        elif hot and said.bare and not open_trace.trace.framing:
            yield from self._of_line(said._replace(rank=key[0], pid=key[1]), text, t)
        for chain in open_trace.trace.feed(text):
            yield from self._of_chain(key, open_trace, chain)
            self._traces[key] = _Open(open_trace.trace, t, said)
        if not open_trace.trace.open:
            del self._traces[key]

    def _key(self, said: Said) -> _Key:
        if said.bare and said.rank is None:
            return self._last if self._last in self._traces else _NOBODY
        key = (said.rank, said.pid, said.process)
        self._last = key if said.engine in _HEADED else _NOBODY
        return key

    def _end_others(self, said: Said, key: _Key) -> Iterator[Mark]:
        """A line with a prefix ends the messages that ran on to it."""
        for other, begun in list(self._traces.items()):
            own = other == key
            if begun.said.bare or begun.said.engine in _HEADED:
                over = own or not begun.trace.framing
            else:
                moved = said.place != begun.said.place or said.level < Level.ERROR
                over = own and moved and not begun.trace.framing
            if over:
                for chain in begun.trace.end():
                    yield from self._of_chain(other, begun, chain)
                del self._traces[other]

    def _of_last_words(self, key: _Key, marks: Iterator[Mark]) -> Iterator[Mark]:
        """Keep back the mark of a native crash until the dump behind it has named the frame."""
        for mark in marks:
            if BEGINS.match(mark.lines[0].text):
                self._crashes[key] = _Crash(mark, FatalDump())
            else:
                yield mark

    def _of_line(self, said: Said, line: LogLine, t: float) -> Iterator[Mark]:
        rank = self.lore.rank(said)
        phase = said.phase or self.lore.phases.of(rank)
        kernel = said.process == "kernel"
        found = classify(
            self._catalog,
            said.text,
            line.text,
            "" if kernel else self.lore.engine,
            phase,
            "kernel" if kernel else "line",
        )
        if found is None or found.signature.role == "harmless":
            return
        grave = said.bare or said.process == "nccl" or said.level >= Level.ERROR
        yield Mark(
            self.source, (t, line.offset), rank, said.pid, said.process, self.lore.engine, phase,
            found.signature, found.groups, (line,), grave=grave,
        )  # fmt: skip

    def _of_chain(self, key: _Key, begun: _Open, chain: tuple[Link, ...]) -> Iterator[Mark]:
        if key in self._ignored:
            self._ignored.discard(key)
            return
        t, said = begun.t, begun.said
        rank = self.lore.rank(said)
        phase = said.phase or phase_of_frames(chain) or self.lore.phases.of(rank)
        found, link = classify_chain(self._catalog, chain, self.lore.engine, phase)
        if found and found.signature.role == "harmless":
            return
        lines = link.deciding
        yield Mark(
            self.source, (t, lines[0].offset), rank, said.pid, said.process, self.lore.engine,
            phase, found.signature if found else None, found.groups if found else {}, lines, link,
        )  # fmt: skip
