"""The keeper's lines of `events.jsonl`; `panel.domain.events` says what they mean."""

from __future__ import annotations

import os
import time
from collections.abc import Sequence

from panel.domain.redact import redact
from panel.supervisor import procfs
from panel.supervisor.keeper.journal import Journal

COMMAND_CHARS = 160


class Events:
    """Writes what happens to one launch."""

    def __init__(self, folder: str, t0_mono_ns: int) -> None:
        """Open the file in the evidence folder. Raises OSError."""
        self._t0_mono_ns = t0_mono_ns
        self._journal = Journal(os.path.join(folder, "events.jsonl"))

    def t(self) -> float:
        """Seconds since launch, to the microsecond."""
        return round((time.monotonic_ns() - self._t0_mono_ns) / 1e9, 6)

    def spawn(self, source: str, pid: int, ppid: int, command: str = "") -> None:
        """A process of the gang exists."""
        fields: dict[str, object] = {"source": source, "pid": pid, "ppid": ppid}
        ticks = procfs.start_ticks(pid)
        if ticks is not None:
            fields["start_ticks"] = ticks
        rank = source.removeprefix("rank-")
        if rank != source and rank.isdigit():
            fields["rank"] = int(rank)
        if command:
            fields["command"] = redact(command)[:COMMAND_CHARS]
        self._write("spawn", **fields)

    def title(self, pid: int, title: str, rank: int | None) -> None:
        """A process named itself."""
        known = {} if rank is None else {"rank": rank}
        self._write("title", pid=pid, title=title, **known)

    def exit(self, pid: int, code: int | None) -> None:
        """A process ended; negative codes are signals, None is not known."""
        self._write("exit", pid=pid, code=code)

    def signal(self, pid: int, sig: int) -> None:
        """We sent a signal."""
        self._write("signal", pid=pid, sig=sig, by="keeper")

    def gang(
        self, state: str, reason: str = "", code: int | None = None, alive: Sequence[int] = ()
    ) -> None:
        """The whole changed its state."""
        self._write("gang", state=state, reason=reason, code=code, alive=alive)

    def alarm(self, text: str) -> None:
        """Something that the keeper should do cannot be done."""
        self._write("alarm", text=text)

    def _write(self, kind: str, **fields: object) -> None:
        self._journal.write(t=self.t(), kind=kind, **fields)
