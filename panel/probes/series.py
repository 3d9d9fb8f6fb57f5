"""History of named figures: the last minutes in memory, the whole launch in a small file.

The file has a line of names whenever the names change, and a line of figures each second:

    {"names": ["engine.tok_s", "gpu0.util"]}
    [12.0, 410.5, 71]
"""

from __future__ import annotations

import json
import os
from collections import deque
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from panel.domain.series import Series

KEPT = 900
"""Moments in memory."""
Moment = tuple[float, dict[str, float | None]]


class History:
    """The newest moments, and optionally the file that takes them all."""

    def __init__(self, path: Path | None = None, kept: int = KEPT) -> None:
        self._moments: deque[Moment] = deque(maxlen=kept)
        self._path = path
        self._names: list[str] = []

    def add(self, t: float, figures: Mapping[str, float | None]) -> None:
        """Take in the figures of one moment; where the disk is full only memory has them."""
        self._moments.append((t, dict(figures)))
        if self._path is not None:
            try:
                self._write(self._path, t, figures)
            except OSError:
                self._names = []

    def series(self, prefixes: tuple[str, ...] = ()) -> Series:
        """Return what memory has of the names that begin with one of `prefixes`; none: of all."""
        return _series(list(self._moments), prefixes)

    def _write(self, path: Path, t: float, figures: Mapping[str, float | None]) -> None:
        lines = b""
        names = sorted(figures)
        if names != self._names:
            lines = _line({"names": names})
        lines += _line([t, *(figures[name] for name in names)])
        descriptor = os.open(path, os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o600)
        try:
            os.write(descriptor, lines)
        finally:
            os.close(descriptor)
        self._names = names


def read(path: Path, prefixes: tuple[str, ...] = ()) -> Series:
    """Return the same of a file; a torn last line is passed over. Raises OSError."""
    names: list[str] = []
    moments: list[Moment] = []
    for line in path.read_bytes().splitlines():
        try:
            found = json.loads(line)
        except ValueError:
            continue
        if isinstance(found, dict):
            names = found.get("names", [])
        elif isinstance(found, list) and len(found) == 1 + len(names):
            moments.append((found[0], dict(zip(names, found[1:], strict=True))))
    return _series(moments, prefixes)


def _series(moments: list[Moment], prefixes: tuple[str, ...]) -> Series:
    names = dict.fromkeys(name for _, figures in moments for name in figures)
    return Series(
        times=tuple(t for t, _ in moments),
        values={
            name: tuple(figures.get(name) for _, figures in moments)
            for name in names
            if not prefixes or name.startswith(prefixes)
        },
    )


def _line(value: Any) -> bytes:
    return json.dumps(value, separators=(",", ":")).encode() + b"\n"
