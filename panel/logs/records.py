"""Lines → records: when, which rank, how severe, in which phase."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

import msgspec

from panel.logs.decode import Line, decode
from panel.logs.grammars import Dialect, detect
from panel.logs.grammars.builtin import BUILTIN
from panel.logs.merge import Arrivals
from panel.logs.prefix import Grammar, Prefix
from panel.logs.severity import Level
from panel.logs.voices import Voices

__all__ = [
    "Dialect", "Grammar", "Level", "Prefix", "Record", "RecordReader",
    "builtin", "rank_of", "settled", "survey",
]  # fmt: skip


builtin = BUILTIN
"""Grammar of our engine."""


class Record(msgspec.Struct, frozen=True, kw_only=True, gc=False):
    """One line of one source, or the part of a line that is a record of its own."""

    source: str
    """rank-3, frontend, spawner, engine."""
    rank: int | None
    t: float
    """Seconds since launch at which it arrived."""
    printed: str | None
    """The time that the engine printed; None on lines without a prefix."""
    level: Level
    prefix: str
    """What stands before the text: time, tags, level; empty on lines without a prefix."""
    text: str
    offset: int
    """Byte offset of the line in its log."""
    phase: str | None
    part: int = 0
    """Its place among the records of this line, from 0."""
    pid: int | None = None
    """The process that wrote it, where the line says so."""

    @property
    def line(self) -> str:
        """The whole of it."""
        return self.prefix + self.text


def rank_of(source: str) -> int | None:
    """Return the rank whose log this is: 3 for `rank-3`, None for others."""
    name, _, number = source.rpartition("-")
    return int(number) if name == "rank" and number.isdecimal() else None


class RecordReader:
    """Make records of one source's lines, in order; lines without prefix continue the last one."""

    def __init__(
        self,
        source: str,
        arrivals: Arrivals,
        dialect: Dialect | Grammar = Dialect(),  # noqa: B008  (frozen)
        ranks: Mapping[int, int] | None = None,
    ) -> None:
        """`ranks`: by pid, as `survey` finds them: a log names a process before its rank."""
        self.source = source
        self._arrivals = arrivals
        self._voices = Voices(
            Dialect(dialect) if isinstance(dialect, Grammar) else dialect,
            rank_of(source),
            dict(ranks or {}),
        )

    @property
    def ranks(self) -> Mapping[int, int]:
        """Ranks by pid, as far as the lines have told by now; see `settled`."""
        return self._voices.ranks

    def read(self, lines: Iterable[Line]) -> list[Record]:
        """Return the records of the next lines."""
        return [record for line in lines for record in self._records(line)]

    def _records(self, line: Line) -> list[Record]:
        t = self._arrivals.at(line.offset)
        return [
            Record(
                source=self.source,
                rank=piece.rank,
                t=t,
                printed=piece.printed,
                level=piece.level,
                prefix=piece.prefix,
                text=piece.text,
                offset=line.offset,
                phase=piece.phase,
                part=part,
                pid=piece.pid,
            )
            for part, piece in enumerate(self._voices.pieces(line))
        ]


def settled(records: Iterable[Record], ranks: Mapping[int, int]) -> list[Record]:
    """Give a rank to the records of processes whose rank became known after them."""
    return [
        msgspec.structs.replace(record, rank=ranks[record.pid])
        if record.rank is None and record.pid is not None and record.pid in ranks
        else record
        for record in records
    ]


def survey(source: str, head: bytes) -> tuple[Dialect, dict[int, int]]:
    """Return how a log is written and the ranks by pid, from its first bytes; 64 KiB do, some MiB
    reach what vLLM tells late."""
    lines = decode(head)
    dialect = detect(line.text for line in lines[:_DETECTING_LINES])
    voices = Voices(dialect, rank_of(source))
    for line in lines if b"pid=" in head or b"NCCL" in head else ():
        voices.pieces(line)
    return dialect, voices.ranks


_DETECTING_LINES = 2000
