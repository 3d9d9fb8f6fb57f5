"""`<source>.times`: when the bytes of a log arrived.

A sample {"t", "offset"} says that the bytes from `offset` on arrived at `t`, up to the next sample.
inotify reports the first write after a pause; while a log grows its size is looked at every 10 ms,
so that a storm of writes costs neither the writers nor the keeper an event each.
"""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Mapping

from panel.supervisor.keeper import linux
from panel.supervisor.keeper.journal import Journal, note

GROWING_S = 0.01
"""Between two samples of a log that grows: at most 100 a second."""
POLLING_S = 0.1
"""Between two looks where inotify is not to be had."""


class _Log:
    def __init__(self, path: str, times: Journal) -> None:
        self._fd = os.open(path, os.O_RDONLY | os.O_CREAT, 0o600)
        # This name stays with the file when the log is renamed.
        self.name = f"/proc/self/fd/{self._fd}"
        self._times = times
        self._known = 0

    def sample(self, clock: Callable[[], float]) -> bool:
        """Note growth since the last sample; return whether there was any."""
        size = os.fstat(self._fd).st_size
        # A sample that a full disk swallows is made up for by the next: no byte lacks a time.
        if size <= self._known or not self._times.write(t=clock(), offset=self._known):
            return False
        self._known = size
        return True


class Arrivals:
    """Watches the logs of a gang grow."""

    def __init__(self, logs: Mapping[str, str], folder: str, clock: Callable[[], float]) -> None:
        """`logs` is path by source, `clock` gives seconds since launch. Raises OSError."""
        self._clock = clock
        self._logs = [
            _Log(path, Journal(os.path.join(folder, f"{source}.times")))
            for source, path in logs.items()
        ]
        try:
            self.fd: int | None = linux.inotify()
        except OSError as error:
            note(f"inotify: {error}; the logs are looked at every {POLLING_S} s instead")
            self.fd = None
        self._reports = self.fd is not None
        self.due: float | None = 0.0
        """Monotonic time of the next look; None: when inotify reports a write."""

    def reported(self) -> None:
        """Take what inotify reports: look now, unless a look is due anyway."""
        assert self.fd is not None
        os.read(self.fd, 65536)
        if self.due is None:
            self.due = time.monotonic()

    def look(self, now: float) -> None:
        """Sample every log and settle when to look again."""
        if self.sample():
            self.due = now + GROWING_S
        elif not self._arm():
            self.due = now + POLLING_S
        else:
            # What was written between the sample and the arming would go unnoticed.
            self.due = now + GROWING_S if self.sample() else None

    def sample(self) -> bool:
        """Note the growth of every log; return whether there was any."""
        grown = [log.sample(self._clock) for log in self._logs]
        return any(grown)

    def _arm(self) -> bool:
        if self.fd is not None and self._reports:
            try:
                for log in self._logs:
                    linux.notify_next_write(self.fd, log.name)
            except OSError as error:
                note(f"inotify: {error}; the logs are looked at every {POLLING_S} s instead")
                self._reports = False
        return self._reports
