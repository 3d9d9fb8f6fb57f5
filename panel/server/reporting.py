"""Log lines and startup events, both written with one `write` a record.

Several processes append to the same files; the kernel keeps single appends apart, so records of
different ranks never interleave.
"""

from __future__ import annotations

import json
import logging
import os
import sys
import time
from collections.abc import Callable

_started_ns = time.monotonic_ns()


def rank_tag(rank: int, tp_size: int, ep_size: int) -> str:
    """Return the tag of a rank's log lines: `TP3`, or `TP3 EP1` where experts are shared out."""
    if ep_size == 1:
        return f"TP{rank}"
    return f"TP{rank} EP{rank // (tp_size // ep_size)}"


class _Formatter(logging.Formatter):
    """`[2026-01-31 12:00:00.123 TP3 EP3 capture] INFO text`, the prefix on every line."""

    def __init__(self, tag: str, phase_of: Callable[[], str]) -> None:
        super().__init__()
        self._tag = tag
        self._phase_of = phase_of

    def format(self, record: logging.LogRecord) -> str:
        stamp = time.strftime("%Y-%m-%d %H:%M:%S", time.localtime(record.created))
        prefix = f"[{stamp}.{int(record.msecs):03d} {self._tag} {self._phase_of()}]"
        prefix = f"{prefix} {record.levelname} "
        text = record.getMessage()
        if record.exc_info:
            text = f"{text}\n{self.formatException(record.exc_info)}" if text else ""
        return "\n".join(prefix + line for line in text.splitlines() or [""])


class _Handler(logging.Handler):
    """One `write` to standard error a record: nothing is buffered when the process is killed."""

    def emit(self, record: logging.LogRecord) -> None:
        try:
            os.write(sys.stderr.fileno(), (self.format(record) + "\n").encode(errors="replace"))
        except Exception:
            self.handleError(record)


def setup(tag: str, level: str, *, phase_of: Callable[[], str]) -> None:
    """Send all logging of this process to standard error in the engine's format.

    `phase_of` returns the present phase; `level` is the least severe level written.
    """
    handler = _Handler()
    handler.setFormatter(_Formatter(tag, phase_of))
    root = logging.getLogger()
    root.handlers[:] = [handler]
    root.setLevel(level.upper())


def since_launch() -> float:
    """Seconds since MOEPANEL_T0_NS (CLOCK_MONOTONIC), or since this module was imported."""
    origin = int(os.environ.get("MOEPANEL_T0_NS", _started_ns))
    return (time.monotonic_ns() - origin) / 1e9


class Events:
    """Appends JSON lines to the events file; without a path it does nothing."""

    def __init__(self, path: str | None) -> None:
        flags = os.O_WRONLY | os.O_APPEND | os.O_CREAT | os.O_CLOEXEC
        self._fd = None if path is None else os.open(path, flags, 0o600)

    def write(self, kind: str, **fields: object) -> None:
        """Append `{"t": seconds since launch, "kind": kind, ...}`."""
        if self._fd is not None:
            line = json.dumps({"t": round(since_launch(), 6), "kind": kind, **fields})
            os.write(self._fd, (line + "\n").encode())
