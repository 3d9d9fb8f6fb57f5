"""The evidence folder of a launch: its names, and how its files are read and written.

Usable without the daemon: history, logs and triage read the same files.
"""

from __future__ import annotations

import errno
import os
from pathlib import Path
from typing import NamedTuple, TypeVar

import msgspec

from panel.domain.events import Event
from panel.domain.plan import Plan
from panel.domain.since import Since
from panel.domain.verdict import Verdict

T = TypeVar("T")

_READ_BYTES = 1 << 20
_events = msgspec.json.Decoder(Event)


class LaunchSpec(msgspec.Struct, frozen=True, kw_only=True):
    """`launch.json`: what was started, secrets redacted."""

    id: int
    uuid: str
    t0_unix: float
    t0_mono_ns: int
    boot_id: str
    engine: str
    version: str
    profile: str
    world_size: int
    url: str
    argv: tuple[str, ...]
    env: dict[str, str]
    """What differs from the supervisor's own environment."""
    sources: dict[str, int | None]
    """Rank by source."""
    plan: Plan
    versions: dict[str, str] = {}
    outside: bool = False
    """Its processes are no children of the keeper, such as those of a container."""
    since: Since | None = None
    """What is new against the last good launch of the profile; None where there was none."""


class KeeperId(msgspec.Struct, frozen=True):
    """`keeper.json`: which process the keeper is."""

    pid: int
    start_ticks: int
    boot_id: str


class Folder(NamedTuple):
    """One evidence folder."""

    path: Path

    @property
    def launch(self) -> Path:
        """The spec."""
        return self.path / "launch.json"

    @property
    def events(self) -> Path:
        """What happened, a JSON object a line."""
        return self.path / "events.jsonl"

    @property
    def keeper(self) -> Path:
        """Which process the keeper is."""
        return self.path / "keeper.json"

    @property
    def verdict(self) -> Path:
        """What triage concludes."""
        return self.path / "verdict.json"

    @property
    def series(self) -> Path:
        """Figures of engine and GPUs, a line a second."""
        return self.path / "series.jsonl"

    @property
    def flight(self) -> Path:
        """Folder of the flight recorders' pipes and dumps."""
        return self.path / "flight"

    def log(self, source: str) -> Path:
        """Return the log of a source: raw bytes as written."""
        return self.path / f"{source}.log"

    def times(self, source: str) -> Path:
        """Return the arrival times of a source's log."""
        return self.path / f"{source}.times"

    def sources(self) -> list[str]:
        """Return the sources that have a log."""
        return sorted(path.stem for path in self.path.glob("*.log"))


def append_event(folder: Folder, event: Event) -> None:
    """Append one line by one write, which the kernel keeps apart from those of others.

    Raises OSError where the line is not whole in the file.
    """
    fd = os.open(folder.events, os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o600)
    try:
        line = msgspec.json.encode(event) + b"\n"
        if os.write(fd, line) < len(line):
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC), str(folder.events))
    finally:
        os.close(fd)


class EventReader:
    """Reads what was appended since the last call."""

    def __init__(self, folder: Folder) -> None:
        self._path = folder.events
        self._position = 0

    def read(self) -> list[Event]:
        """Return the new whole events; lines of a kind not known here are passed over."""
        try:
            if self._path.stat().st_size == self._position:
                return []
            with self._path.open("rb") as file:
                file.seek(self._position)
                data = file.read()
        except FileNotFoundError:
            return []
        whole = data[: data.rfind(b"\n") + 1]
        self._position += len(whole)
        return [event for line in whole.splitlines() if (event := _decode(line)) is not None]


def _decode(line: bytes) -> Event | None:
    try:
        return _events.decode(line)
    except msgspec.DecodeError:
        return None


def read_json(path: Path, kind: type[T]) -> T | None:
    """Return the struct in a file, None where it is missing or something else."""
    try:
        return msgspec.json.decode(path.read_bytes(), type=kind)
    except (OSError, msgspec.DecodeError):
        return None


def write_json(path: Path, value: msgspec.Struct) -> None:
    """Write a struct so that a reader sees the old file or the whole new one. Raises OSError."""
    fresh = path.with_name(f".{path.name}.new")
    data = msgspec.json.format(msgspec.json.encode(value), indent=1) + b"\n"
    with open(os.open(fresh, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600), "wb") as file:
        file.write(data)
    fresh.replace(path)


def read_lines(path: Path, offset: int, limit: int = 1 << 20) -> bytes:
    """Return at most `limit` bytes of whole lines from an offset on; none where nothing is new."""
    try:
        with path.open("rb") as file:
            file.seek(offset)
            data = file.read(limit)
    except OSError:
        return b""
    return data[: data.rfind(b"\n") + 1]


class Tail(NamedTuple):
    """The end of a log, whole lines."""

    data: bytes
    offset: int
    line: int
    """Number of the first line, from 1."""


def read_tail(path: Path, limit: int = 1 << 16) -> Tail:
    """Return about the last `limit` bytes of a log; empty where there is none."""
    try:
        with path.open("rb") as file:
            size = os.fstat(file.fileno()).st_size
            lines = 1
            position = max(0, size - limit)
            for start in range(0, position, _READ_BYTES):
                lines += file.read(min(_READ_BYTES, position - start)).count(b"\n")
            data = file.read(limit)
    except OSError:
        return Tail(b"", 0, 1)
    if position:
        cut = data.find(b"\n") + 1
        return Tail(data[cut:], position + cut, lines + (cut > 0))
    return Tail(data, 0, 1)


def verdict_of(folder: Folder) -> Verdict | None:
    """Return the verdict that was reached, if any."""
    return read_json(folder.verdict, Verdict)
