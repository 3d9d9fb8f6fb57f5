"""How `moepanel logs` prints records and folded rows. All text is redacted."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import msgspec

from panel.domain.redact import redact
from panel.logs.fold import Row, label
from panel.logs.records import Record, rank_of


class LogLine(msgspec.Struct, frozen=True, kw_only=True):
    """A record in JSON."""

    t: float
    source: str
    rank: int | None
    level: str
    phase: str | None
    offset: int
    text: str


class FoldedLine(msgspec.Struct, frozen=True, kw_only=True):
    """Equal records of several ranks in JSON; numbers that differ are `#`."""

    t: float
    ranks: tuple[int, ...]
    missing: tuple[int, ...]
    odd: tuple[int, ...]
    level: str
    phase: str | None
    text: str


def as_text(sources: Sequence[str]) -> Callable[[Record, bool], str]:
    """Return how a record is shown, True if it is a hit; of several sources with its own in front,
    and where they are neighbours of hits with a dash."""
    if len(sources) == 1:
        return lambda record, found: redact(record.line) + "\n"
    width = max((len(_source(source)) for source in sources), default=8)

    def line(record: Record, found: bool) -> str:
        sign = "|" if found else "-"
        return f"{_source(record.source):>{width}} {sign} {redact(record.line)}\n"

    return line


def _source(source: str) -> str:
    rank = rank_of(source)
    return source if rank is None else str(rank)


def as_json(record: Record, found: bool) -> str:
    """Return a record as a line of JSON."""
    line = LogLine(
        t=record.t,
        source=record.source,
        rank=record.rank,
        level=record.level.name.lower(),
        phase=record.phase,
        offset=record.offset,
        text=redact(record.text),
    )
    return msgspec.json.encode(line).decode() + "\n"


def row_as_text(row: Row, world: Sequence[int]) -> str:
    """Return `12.345  ×7 [012·4567]  text`; behind `!` the ranks that differ."""
    who = label(row, world) or row.first.source
    odd = f" !{','.join(map(str, row.odd))}" if row.odd else ""
    width = len("×8 []") + len(world)
    return f"{row.first.t:9.3f}  {who:<{width}}{odd}  {redact(row.text)}\n"


def row_as_json(row: Row, world: Sequence[int]) -> str:
    """Return a row as a line of JSON."""
    line = FoldedLine(
        t=row.first.t,
        ranks=row.ranks,
        missing=row.missing,
        odd=row.odd,
        level=row.first.level.name.lower(),
        phase=row.first.phase,
        text=redact(row.text),
    )
    return msgspec.json.encode(line).decode() + "\n"
