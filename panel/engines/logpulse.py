"""What the ranks of an engine without heartbeats say of themselves in its one log."""

from __future__ import annotations

import os
import re
from collections.abc import Mapping
from pathlib import Path
from typing import NamedTuple

from panel.domain.phases import Phase
from panel.domain.redact import redact
from panel.domain.run import phase_index
from panel.engines.base import Progress
from panel.engines.logmemory import LogMemory
from panel.logs.decode import LineDecoder
from panel.logs.grammars import named
from panel.logs.merge import Arrivals
from panel.logs.phases import Phases
from panel.logs.records import Record, RecordReader, settled

_MOST = 1 << 19
"""Bytes of one look. Only a storm writes more between two; its beginning tells nothing new."""
_LONGEST = 400
"""Bytes of a line that is being drawn, and characters of one that is shown."""
_BAR = re.compile(
    rb"(?P<what>[Ll]oading|Capturing)[^|\r\n]*?(?:bs=(?P<detail>\d+)[^|\r\n]*)?\|(?:[^|\r\n]*\|)?\s*"
    rb"(?P<done>\d+)/(?P<total>\d+)"
)
_PHASES = {b"loading": (Phase.WEIGHTS, Phase.DRAFT), b"capturing": (Phase.CAPTURE,)}


class _Bar(NamedTuple):
    """The last state of a progress bar; one rank draws it for all."""

    phases: tuple[Phase, ...]
    done: int
    total: int
    detail: int


class LogPulse:
    """Reads the log from its beginning, then what is new at each look."""

    def __init__(self, log: Path, engine: str, world_size: int, *, premature: str = "") -> None:
        """`engine` is the grammar's name; `premature` stands in a line that says too early that it
        serves. Raises OSError where there is no log yet."""
        self._file = log.open("rb")
        self._world_size = world_size
        self._premature = premature
        self._decoder = LineDecoder()
        self._reader = RecordReader(log.stem, Arrivals(), named([engine]))
        self._phases = Phases()
        self._memory = LogMemory()
        self._bar = _Bar((), 0, 0, 0)
        self._tail = b""
        self._said: dict[int, str] = {}

    def read(self) -> tuple[Progress | None, ...]:
        """Return where each rank stands, None before the log tells."""
        behind = os.fstat(self._file.fileno()).st_size - self._file.tell()
        if behind > _MOST and self._phases.latest == Phase.SERVING:
            self._skip(behind - _MOST)
        while chunk := self._file.read(_MOST):
            self._take(chunk)
        return tuple(self._progress(rank) for rank in range(self._world_size))

    def memory(self) -> Mapping[int, Mapping[str, int]]:
        """Return what each rank has taken, as far as the log says."""
        return self._memory.ranks

    def close(self) -> None:
        """Let go of the file."""
        self._file.close()

    def _skip(self, size: int) -> None:
        self._decoder = LineDecoder(self._file.seek(size, os.SEEK_CUR))
        self._decoder.feed(self._file.readline())
        self._tail = b""

    def _take(self, chunk: bytes) -> None:
        records = self._reader.read(self._decoder.feed(chunk))
        for record in settled(records, self._reader.ranks):
            self._see(record)
        data = self._tail + chunk
        for match in _BAR.finditer(data):
            self._bar = _Bar(
                _PHASES[match["what"].lower()],
                int(match["done"]),
                int(match["total"]),
                int(match["detail"] or 0),
            )
        self._tail = data[data.rfind(b"\n") + 1 :][-_LONGEST:]
        if _BAR.search(self._tail):
            self._draw()

    def _draw(self) -> None:
        """A bar stands on a line without end as long as its phase lasts."""
        phase = self._bar.phases[0]
        for rank in range(self._world_size):
            if phase_index(self._phases.of(rank) or "") < phase_index(phase):
                self._phases.enter(phase, rank)

    def _see(self, record: Record) -> None:
        # The lone rank may be a thread of a process that bears no number.
        rank = 0 if self._world_size == 1 else record.rank
        if not self._premature or self._premature not in record.text:
            self._phases.see(record.text, rank)
        self._memory.see(record.text, rank)
        if rank is not None and record.text.strip():
            self._said[rank] = redact(record.text.strip())[:_LONGEST]

    def _progress(self, rank: int) -> Progress | None:
        phase = self._phases.of(rank)
        if phase is None:
            return None
        shown = self._bar if phase in self._bar.phases else _Bar((), 0, 0, 0)
        return Progress(phase, shown.done, shown.total, shown.detail, said=self._said.get(rank, ""))
