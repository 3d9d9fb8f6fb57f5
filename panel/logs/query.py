"""What is searched in logs, checked before anything is read."""

from __future__ import annotations

import re
from dataclasses import asdict, dataclass
from typing import Any

from panel.domain.errors import UsageError
from panel.logs.bounded import bounded
from panel.logs.severity import Level


@dataclass(frozen=True, slots=True)
class Query:
    """Which lines are wanted; all conditions must hold."""

    pattern: str = ""
    """Searched in the line as shown, prefix included. Empty: every line."""
    literal: bool = False
    """The pattern is text, not a regular expression."""
    ignore_case: bool = False
    invert: bool = False
    """Lines in which the pattern is not found."""
    level: Level = Level.DEBUG
    """The least severe wanted."""
    heads: bool = False
    """Of a record of several lines only the first; a traceback is one record."""
    ranks: tuple[int, ...] = ()
    """Of any of these; empty: of all."""

    @property
    def regex(self) -> str:
        """The regular expression."""
        return re.escape(self.pattern) if self.literal else self.pattern

    @property
    def flags(self) -> int:
        """Flags to compile it with."""
        return re.IGNORECASE if self.ignore_case else 0

    @property
    def by_record(self) -> bool:
        """Whether more than the text of a line decides."""
        return self.level > Level.DEBUG or bool(self.ranks) or self.heads

    def compile(self) -> re.Pattern[str]:
        """Return the pattern. Raises `UsageError` that shows where it is wrong."""
        try:
            return re.compile(self.regex, self.flags)
        except re.error as error:
            at = f" at character {error.pos + 1}" if error.pos is not None else ""
            raise UsageError(
                f"{self.pattern!r} is no regular expression: {error.msg}{at}",
                "put a backslash before signs that are meant as text",
            ) from None
        except (OverflowError, RecursionError) as error:
            raise UsageError(f"the regular expression is too large: {error}") from None

    @property
    def marker(self) -> re.Pattern[str] | None:
        """What may be marked in texts by a program that nothing could stop; None: too risky."""
        if not self.pattern or self.invert or not bounded(self.regex, self.flags):
            return None
        return self.compile()

    def to_json(self) -> dict[str, Any]:
        """Return plain values from which `from_json` makes it again."""
        return asdict(self)

    @classmethod
    def from_json(cls, values: dict[str, Any]) -> Query:
        """Return the query that `to_json` was called on."""
        return cls(**values | {"level": Level(values["level"]), "ranks": tuple(values["ranks"])})


class Filter:
    """A query, ready to be asked about records."""

    def __init__(self, query: Query) -> None:
        """Raises `UsageError` where the pattern is none."""
        self._query = query
        self.search = query.compile().search

    def wants(self, text: str, level: Level, rank: int | None) -> bool:
        """Return whether a record with this whole line is wanted."""
        query = self._query
        if level < query.level or (query.ranks and rank not in query.ranks):
            return False
        return not query.pattern or (self.search(text) is None) is query.invert
