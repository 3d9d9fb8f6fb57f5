"""Bounds what the logs of a launch take on disk, though engines append to them for ever.

Above a cap the middle of the largest log is punched out, in small steps because the keeper has
other things to do. First and last part stay, and all offsets: `<source>.holes` says what is gone,
one {"start", "end", "lines"} a step, whole lines.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping

from panel.supervisor.keeper import linux
from panel.supervisor.keeper.journal import Journal

CAP = 4 << 30
KEPT = 256 << 20
"""At the beginning and at the end of each log."""
STEP = 16 << 20
IDLE_S = 2.0
"""Between two looks while the logs are below the cap."""
BUSY_S = 0.05
"""Between two steps; a storm of 300 MiB/s is kept up with."""


class _Log:
    def __init__(self, path: str, holes: Journal, kept: int) -> None:
        self._fd = os.open(path, os.O_RDWR | os.O_CREAT, 0o600)
        self._holes = holes
        self._kept = kept
        self._end = kept
        """Where the next step begins."""
        self._noted = kept
        self._lines = 0
        """Lost since what was noted last, as a full disk may refuse a note."""

    def stored(self) -> int:
        """Return the bytes on disk."""
        return os.fstat(self._fd).st_blocks * 512

    def spare(self) -> int:
        """Return how many bytes could be punched out."""
        return os.fstat(self._fd).st_size - self._kept - self._end

    def punch(self, step: int) -> None:
        """Punch out some lines. Raises OSError."""
        if self._end == self._kept:
            # The part that is kept ends with a whole line.
            rest = os.pread(self._fd, step, self._kept).find(b"\n") + 1
            self._end = self._noted = self._kept + rest
        data = os.pread(self._fd, step, self._end)
        # A line longer than a step is cut: the log must shrink.
        length = data.rfind(b"\n") + 1 or len(data)
        linux.punch_hole(self._fd, self._end, self._end + length)
        self._lines += data.count(b"\n", 0, length)
        self._end += length
        if self._holes.write(start=self._noted, end=self._end, lines=self._lines):
            self._noted, self._lines = self._end, 0


class Holes:
    """Punches the logs of one gang."""

    def __init__(
        self,
        logs: Mapping[str, str],
        folder: str,
        alarm: Callable[[str], None],
        cap: int = CAP,
        kept: int = KEPT,
        step: int = STEP,
    ) -> None:
        """`logs` is path by source; sizes are bytes. `alarm` is called once where the file system
        has no holes. Raises OSError."""
        self._logs = [
            _Log(path, Journal(os.path.join(folder, f"{source}.holes")), kept)
            for source, path in logs.items()
        ]
        self._alarm = alarm
        self._cap, self._step = cap, step
        self._able = True
        self.due = 0.0
        """Monotonic time of the next look."""

    def look(self, now: float) -> None:
        """Do one step if the logs take more than the cap, and settle when to look again."""
        self.due = now + (BUSY_S if self.trim() else IDLE_S)

    def trim(self) -> bool:
        """Do one step if the logs take more than the cap; return whether one was done."""
        if not self._able or sum(log.stored() for log in self._logs) <= self._cap:
            return False
        log = max(self._logs, key=_Log.spare)
        if log.spare() < self._step:
            return False
        try:
            log.punch(self._step)
        except OSError as error:
            self._able = False
            gib = self._cap / (1 << 30)
            self._alarm(
                f"the logs take more than {gib:g} GiB and cannot be shortened here: "
                f"{error.strerror}; watch the free space of the disk"
            )
        return self._able
