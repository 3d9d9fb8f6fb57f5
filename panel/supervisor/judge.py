"""Feeds triage with what is new of a launch, and asks it for the verdict."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from pathlib import Path

from panel.domain.events import Event
from panel.domain.verdict import Verdict
from panel.engines.base import Engine, Progress
from panel.logs.files import open_regular
from panel.logs.merge import parse_times
from panel.supervisor.evidence import Folder, LaunchSpec
from panel.triage.facts import Facts
from panel.triage.scene import Beat, ExitCodes
from panel.triage.triage import Triage

_LOOK_S = 0.25
"""Between two looks at the logs while no event calls for one."""
_SOON_S = 0.05
"""Where one of them waits for its arrival times."""
_TIME_S = 1.0
"""Between two judgements while nothing is new but the time: hangs show by that alone."""
_CHUNK = 1 << 20
_LOOK_BYTES = 8 << 20
"""Of one log at one look: the event loop waits for it."""


class Judge:
    """Of one launch; belongs to the event loop."""

    def __init__(self, folder: Folder, spec: LaunchSpec, engine: Engine) -> None:
        facts = Facts(
            engine=spec.engine,
            version=spec.version,
            argv=spec.argv,
            world_size=spec.world_size,
            sources=spec.sources,
            since=spec.since,
        )
        codes = ExitCodes(engine.exit_words, engine.victim_codes)
        self._triage = Triage(facts, codes=codes)
        self._logs = [_Log(folder, source) for source in spec.sources]
        self._news = False
        self._look_due = 0.0
        self._time_due = 0.0

    def see(self, events: Iterable[Event]) -> None:
        """Take in events."""
        for event in events:
            self._triage.see(event)
            self._news = True

    def verdict(self, t: float, beats: Sequence[Progress | None], over: bool) -> Verdict | None:
        """Return the verdict at `t` seconds since launch, None where nothing can have changed.

        `over`: nothing will be written any more.
        """
        if self._news or over or t >= self._look_due:
            for log in self._logs:
                self._news = log.feed(self._triage, over) or self._news
            self._look_due = t + (_SOON_S if any(log.waits for log in self._logs) else _LOOK_S)
        if not self._news and not over and t < self._time_due:
            return None
        self._news = False
        self._time_due = t + _TIME_S
        return self._triage.verdict(t, _beats(beats))


def _beats(beats: Sequence[Progress | None]) -> list[Beat]:
    return [
        Beat(rank, beat.phase, beat.step, beat.age, beat.meetings, beat.waiting)
        for rank, beat in enumerate(beats)
        if beat is not None and beat.age is not None
    ]


class _Log:
    """One log and its arrival times, read from where the last reading ended."""

    def __init__(self, folder: Folder, source: str) -> None:
        self._source = source
        self._log = folder.log(source)
        self._times = folder.times(source)
        self._read = 0
        self._times_read = 0
        self._noted = -1
        """From which byte on the last arrival time holds."""
        self.waits = False
        """There are bytes of which the keeper has not noted yet when they came."""

    def feed(self, triage: Triage, over: bool) -> bool:
        """Let triage read what is new; return whether there was anything.

        Bytes wait for one look, in which the keeper notes when they came: with the time of older
        ones they would seem to have come before what they tell of.
        """
        waited, self.waits = self.waits, False
        if self._size(self._log) <= self._read:
            return False
        pairs = parse_times(self._whole_lines())
        if over and self._noted < 0:
            pairs = pairs or [(0.0, 0)]
        if pairs:
            self._noted = pairs[-1][1]
            triage.read(self._source, b"", pairs)
        late = self._noted < 0 or (self._noted < self._read and not waited)
        if late and not over:
            self.waits = True
            return False
        end = self._read + _LOOK_BYTES
        try:
            with open_regular(self._log) as file:
                file.seek(self._read)
                while self._read < end and (chunk := file.read(_CHUNK)):
                    triage.read(self._source, chunk)
                    self._read += len(chunk)
        except OSError:
            return False  # It was replaced by what is no log, or may not be read.
        return True

    def _whole_lines(self) -> bytes:
        try:
            with self._times.open("rb") as file:
                file.seek(self._times_read)
                data = file.read()
        except OSError:
            return b""
        whole = data[: data.rfind(b"\n") + 1]
        self._times_read += len(whole)
        return whole

    @staticmethod
    def _size(path: Path) -> int:
        try:
            return path.stat().st_size
        except OSError:
            return 0
