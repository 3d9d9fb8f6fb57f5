"""Literal search through the logs of a launch, without regard to case."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from pathlib import Path

import msgspec

from panel.domain.redact import redact
from panel.supervisor.evidence import Folder

MOST_HITS = 10_000
_CHUNK = 1 << 20
_LONGEST = 2000


class Hit(msgspec.Struct, frozen=True):
    """A line that contains the text."""

    source: str
    offset: int
    line: int
    """Line number, from 1."""
    text: str


def search(folder: Folder, sources: Iterable[str], text: str, limit: int) -> list[Hit]:
    """Return the first hits of each source in turn, `limit` in all. Blocks while it reads."""
    needle = text.lower().encode()
    hits: list[Hit] = []
    for source in sources:
        for hit in _hits(folder.log(source), source, needle):
            if len(hits) >= min(limit, MOST_HITS):
                return hits
            hits.append(hit)
    return hits


def _hits(path: Path, source: str, needle: bytes) -> Iterator[Hit]:
    for chunk, offset, line in _chunks(path):
        if needle not in chunk.lower():
            continue
        for raw in chunk.splitlines(keepends=True):
            if needle in raw.lower():
                text = redact(raw.decode(errors="replace").rstrip("\r\n"))[:_LONGEST]
                yield Hit(source, offset, line, text)
            offset += len(raw)
            line += raw.endswith(b"\n")


def _chunks(path: Path) -> Iterator[tuple[bytes, int, int]]:
    """Yield pieces of whole lines with the offset and number of their first line."""
    offset, line, held = 0, 1, b""
    try:
        with path.open("rb") as file:
            while data := file.read(_CHUNK):
                cut = data.rfind(b"\n") + 1
                chunk, held = held + data[:cut], data[cut:] if cut else held + data
                if cut:
                    yield chunk, offset, line
                    offset += len(chunk)
                    line += chunk.count(b"\n")
    except OSError:
        return
    if held:
        yield held, offset, line
