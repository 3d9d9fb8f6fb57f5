"""Operators' notes of a launch: a file of JSON lines in its evidence folder."""

from __future__ import annotations

import os
import time
from pathlib import Path

import msgspec

from panel.domain.errors import PanelError, UsageError
from panel.domain.notes import Note, Notes
from panel.domain.redact import redact

LONGEST = 2000
_NAME = "notes.jsonl"


def read_notes(folder: Path) -> Notes:
    """Return the notes of a launch; none where there are none. A torn line is passed over."""
    try:
        lines = (folder / _NAME).read_bytes().splitlines()
    except OSError:
        return Notes()
    found = []
    for line in lines:
        try:
            found.append(msgspec.json.decode(line, type=Note))
        except msgspec.DecodeError:
            continue
    return Notes(notes=tuple(found))


def add_note(folder: Path, text: str) -> Notes:
    """Append a note, secrets masked, and return all. Raises `PanelError`."""
    text = redact(" ".join(text.split()))
    if not text or len(text) > LONGEST:
        raise UsageError(f"a note has 1 to {LONGEST} characters")
    line = msgspec.json.encode(Note(text=text, t_unix=round(time.time(), 3))) + b"\n"
    try:
        file = os.open(folder / _NAME, os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o600)
        try:
            os.write(file, line)
        finally:
            os.close(file)
    except OSError as error:
        raise PanelError(f"the note is not kept: {error}", "free disk space") from None
    return read_notes(folder)
