"""Files of JSON lines that never stand in the way of the gang: a full disk costs lines only."""

from __future__ import annotations

import json
import os
from typing import Any


def note(text: str) -> None:
    """Write one line to the keeper's own log (its standard error)."""
    try:
        os.write(2, f"{text}\n".encode())
    except OSError:
        return  # A disk that is full: there is nowhere left to say it.


class Journal:
    """One file, appended to by several processes: one write a line. Mode 0600."""

    def __init__(self, path: str) -> None:
        """Open or create the file. Raises OSError."""
        self._path = path
        self._fd = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600)
        self._torn = False
        self._lost = 0

    def write(self, **fields: Any) -> bool:
        """Append one object; return whether it is in the file."""
        line = json.dumps(fields, separators=(",", ":")).encode() + b"\n"
        try:
            # A line cut short by a full disk is closed, so that it spoils no other.
            data = b"\n" + line if self._torn else line
            written = os.write(self._fd, data)
        except OSError as error:
            self._lose(str(error))
            return False
        if written < len(data):
            self._torn = True
            self._lose("only a part could be written")
            return False
        self._torn = False
        if self._lost:
            note(f"{self._path} can be written again; {self._lost} lines were lost")
            self._lost = 0
        return True

    def _lose(self, why: str) -> None:
        if not self._lost:
            note(f"cannot write {self._path}: {why}")
        self._lost += 1
