"""The bytes of one log → marks, as they come."""

from __future__ import annotations

import re
from collections.abc import Iterable

from panel.logs.decode import clean
from panel.logs.grammars import detect
from panel.logs.merge import Arrivals
from panel.logs.phases import HOT as PHASE_HOT
from panel.triage.mark import Mark
from panel.triage.reader import LineReader
from panel.triage.shapes import Sieve
from panel.triage.signature import Catalog
from panel.triage.trace import LogLine

_HEAD_BYTES = 1 << 19
"""Read line by line: it tells ranks, pids, flags and phases."""
_SAMPLE_LINES = 300
_TAIL_LINES = 6
_LONGEST = 1 << 16
"""Bytes of a line that are looked at: request dumps are longer and say nothing."""
_STRUCTURE = (
    r"Traceback \(most recent call last\):|Exception ignored in|server_args=ServerArgs\("
    r"|in world size \d|NVRM: |\bSXid|Killed process|oom-kill:|aer_uncor_status|Linux version \d"
)
_PASSED_ON = "wrapper"
"""Its words are so common that prose has them too."""
_NAMED = re.compile(r"\(\?P<\w+>")


def hot_text(catalog: Catalog) -> str:
    """Return a pattern of all lines that a signature or a phase may match."""
    patterns = [text for rule in catalog.rules for text in rule.signature.match]
    loose = [re.sub(r"^\^|\(\?i\)", "", _NAMED.sub("(?:", text)) for text in patterns]
    phases = re.sub(r"\(\?P<\w+>", "(?:", PHASE_HOT)
    return "|".join((_STRUCTURE, phases, *(f"(?:{text})" for text in loose)))


class SourceReader:
    """Reads one log. Any chunking gives the same marks."""

    def __init__(self, source: str, catalog: Catalog) -> None:
        self.arrivals = Arrivals()
        self.lines = LineReader(source, catalog)
        self.marks: list[Mark] = []
        self.size = 0
        self.timed = False
        """Whether it is known when bytes arrived."""
        self.tail: list[LogLine] = []
        """The last lines."""
        self._sieve = Sieve(re.compile(hot_text(catalog).encode(), re.IGNORECASE))
        self._held = b""
        self._number = 1
        self._sampled = False

    def feed(self, chunk: bytes, times: Iterable[tuple[float, int]] = ()) -> None:
        """Take the next bytes, and when bytes arrived: (seconds since launch, offset)."""
        pairs = list(times)
        self.timed = self.timed or bool(pairs)
        self.arrivals.extend(pairs)
        block = self._held + chunk
        whole = block.rfind(b"\n") + 1
        self._held = block[whole:]
        if whole:
            self._whole(block[: whole - 1])

    def end(self) -> None:
        """Take the last line, which has no newline."""
        if self._held:
            held, self._held = self._held, b""
            self._whole(held)

    def so_far(self) -> list[Mark]:
        """Return the marks, those of an unfinished traceback too."""
        return [*self.marks, *self.lines.pending()]

    def _whole(self, block: bytes) -> None:
        raws = block.split(b"\n")
        if not self._sampled:
            self._sampled = True
            self.lines.wrappers = detect(clean(raw) for raw in raws[:_SAMPLE_LINES]).wrappers
        hot = set(self._sieve.pick(block, raws))
        if hot or self.lines.open or self.size < _HEAD_BYTES:
            self._read(raws, hot)
        self._keep_tail(raws, self.size + len(block) + 1)
        self._number += len(raws)
        self.size += len(block) + 1

    @property
    def known(self) -> bool:
        """Whether anything in it is of an engine, a library of one or the kernel."""
        return self.lines.lore.known or any(mark.kind != _PASSED_ON for mark in self.so_far())

    @property
    def serving(self) -> tuple[float, int] | None:
        """Where it last says that the engine serves."""
        return self.lines.lore.serving

    @property
    def last_t(self) -> float:
        """When its last byte arrived."""
        return self.arrivals.at(self.size) if self.timed else 0.0

    @property
    def last_line(self) -> str:
        """Its last line that is not empty."""
        return next((line.text for line in reversed(self.tail) if line.text.strip()), "")

    def _keep_tail(self, raws: list[bytes], end: int) -> None:
        first = max(0, len(raws) - _TAIL_LINES)
        offset = end - sum(len(raw) + 1 for raw in raws[first:])
        fresh = []
        for index, raw in enumerate(raws[first:], first):
            fresh.append(LogLine(offset, self._number + index, clean(raw[:_LONGEST])))
            offset += len(raw) + 1
        self.tail = [*self.tail, *fresh][-_TAIL_LINES:]

    def _read(self, raws: list[bytes], hot: set[int]) -> None:
        offset = self.size
        head = offset < _HEAD_BYTES
        for index, raw in enumerate(raws):
            if head or index in hot or self.lines.open:
                line = LogLine(offset, self._number + index, clean(raw[:_LONGEST]))
                t = self.arrivals.at(offset) if self.timed else None
                self.marks += self.lines.read(line, t, index in hot)
            offset += len(raw) + 1
