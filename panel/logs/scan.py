"""The lines of a piece of a log that a query wants. Pure: bytes in, offsets out."""

from __future__ import annotations

import re
from array import array
from collections.abc import Iterable, Iterator, Mapping

from panel.logs.context import Context, line_at, line_end
from panel.logs.grammars import Dialect
from panel.logs.heads import Heads
from panel.logs.literals import required
from panel.logs.oneline import over_lines
from panel.logs.query import Filter, Query
from panel.logs.severity import Level, suspects
from panel.logs.voices import Piece, Voices

_OTHER_CASES = ("ı", "İ", "ſ", "\N{KELVIN SIGN}")
"""Letters that are equal to an ASCII one where case is ignored."""
_SAMPLE = 1 << 16
_PLAIN = bytes(range(0x20, 0x7F)) + b"\n"
"""What is shown as it stands in the file."""


class Scanner:
    """Finds the wanted lines of one log, piece by piece."""

    def __init__(
        self,
        query: Query,
        dialect: Dialect,
        rank: int | None = None,
        ranks: Mapping[int, int] | None = None,
    ) -> None:
        """`rank`: the only one that writes this log; `ranks` by pid. Raises `UsageError`."""
        self._query = query
        self._filter = Filter(query)
        self._needs = required(query.regex, query.flags)
        self._over_lines = over_lines(query.regex, query.flags)
        self._dialect, self._rank, self._ranks = dialect, rank, dict(ranks or {})

    def scan(self, data: bytes, offset: int, lead: int = 0) -> array[int]:
        """Return the offsets, ascending, of the wanted lines in `data`, whole lines from `offset`.

        The first `lead` bytes are whole lines before the piece: they say who speaks in it.
        """
        if self._query.by_record:
            starts = self._by_record(data, lead)
        elif self._query.invert:
            starts = _others(_starts(data, lead), self._matching(data, lead))
        else:
            starts = self._matching(data, lead)
        return array("Q", (offset + start for start in starts))

    def _matching(self, data: bytes, lead: int) -> Iterator[int]:
        """Yield the beginnings of lines in which the pattern is found."""
        if not self._query.pattern:
            yield from _starts(data, lead)
            return
        if self._over_lines and not self._needs.all_of and not data.translate(None, _PLAIN):
            yield from _lines_with(self._over_lines, data.decode("ascii"), lead)
            return
        search = self._filter.search
        for start in self._candidates(data, lead):
            text = data[start : line_end(data, start)].decode("utf-8", "replace")
            if text.isprintable():
                if search(text):
                    yield start
            else:
                line = line_at(data, start)
                if search(line.text) or any(map(search, line.overwritten)):
                    yield start

    def _candidates(self, data: bytes, lead: int) -> Iterable[int]:
        """Return the beginnings of lines that hold what the pattern needs."""
        groups, ignore_case = self._needs
        if not groups:
            return _starts(data, lead)
        searched = data.lower() if ignore_case else data
        encoded = [[text.encode() for text in group] for group in groups]
        needles = min(encoded, key=lambda group: _frequency(searched, group))
        if b"\x1b" in data:
            needles.append(b"\x1b")  # Escape sequences may stand inside the string.
        if b"\t" in data and any(b" " in needle for needle in needles):
            needles.append(b"\t")  # Shown as spaces.
        if ignore_case and not data.isascii():
            needles += [letter.encode() for letter in _OTHER_CASES]
        return _holding(searched, needles, lead)

    def _by_record(self, data: bytes, lead: int) -> Iterator[int]:
        read = Context(data, self._dialect, Voices(self._dialect, self._rank, self._ranks).pieces)
        if self._query.pattern and not self._query.invert:
            starts: Iterable[int] = self._matching(data, lead)
        elif self._query.level > Level.INFO:
            starts = self._severe(data, lead, read)
        else:
            starts = _starts(data, lead)
        wanted = (start for start in starts if any(map(self._wants, read.at(start))))
        return self._heads(data, wanted, read) if self._query.heads else wanted

    def _heads(self, data: bytes, wanted: Iterable[int], read: Context[Piece]) -> Iterator[int]:
        """Yield the lines of those `wanted` in which a record begins."""
        heads, behind = Heads(), -1
        for start in wanted:
            if start != behind and self._rank is not None:
                heads = Heads()  # Nobody else writes here: what was open has ended.
            piece = next(filter(self._wants, read.at(start)))
            if heads.begins(piece, follows=start == behind):
                yield start
            behind = line_end(data, start) + 1

    def _severe(self, data: bytes, lead: int, read: Context[Piece]) -> Iterator[int]:
        """Yield the lines that may be severe: those that say so, and what continues them."""
        done = lead
        for suspect in [lead, *self._suspects(data, lead)]:
            start = suspect
            while done <= start < len(data):
                severe = any(p.level >= self._query.level for p in read.at(start))
                if severe:
                    yield start
                done = start = line_end(data, start) + 1
                if not severe:
                    break

    def _suspects(self, data: bytes, lead: int) -> Iterable[int]:
        """Return the lines in which a record as severe may begin."""
        grammar, wrappers = self._dialect
        if grammar.loud is None or wrappers:
            words = [word.encode() for word in suspects(self._query.level)]
            return _holding(data, words, lead)
        printed = (" WARNING ", " ERROR ", " CRITICAL ")[self._query.level > Level.WARNING :]
        glued = [word.encode() for word in printed]
        begun = (match.end() for match in grammar.loud.finditer(data, max(lead - 1, 0)))
        return sorted({*begun, *_holding(data, glued, lead)})

    def _wants(self, piece: Piece) -> bool:
        return self._filter.wants(piece.prefix + piece.text, piece.level, piece.rank)


def _lines_with(pattern: re.Pattern[str], text: str, start: int) -> Iterator[int]:
    """Yield the beginnings of lines in which a pattern is found that never leaves a line."""
    while start < len(text) and (found := pattern.search(text, start)):
        at = text.rfind("\n", 0, found.start()) + 1
        if at == len(text):
            return  # Behind the last newline no line begins.
        yield at
        start = text.find("\n", found.start()) + 1 or len(text)


def _starts(data: bytes, start: int) -> Iterator[int]:
    """Yield the beginnings of lines from `start` on."""
    while start < len(data):
        yield start
        start = line_end(data, start) + 1


def _holding(data: bytes, needles: list[bytes], start: int) -> Iterable[int]:
    """Return the beginnings of lines that hold one of the needles, in order."""
    if len(needles) == 1:
        return _holding_one(data, needles[0], start)
    return sorted({at for needle in needles for at in _holding_one(data, needle, start)})


def _holding_one(data: bytes, needle: bytes, start: int) -> Iterator[int]:
    while (found := data.find(needle, start)) >= 0:
        yield data.rfind(b"\n", start, found) + 1 or start
        start = line_end(data, found) + 1


def _frequency(data: bytes, needles: list[bytes]) -> int:
    """Return how often the needles stand in a sample of the data."""
    return sum(data.count(needle, 0, _SAMPLE) for needle in needles)


def _others(starts: Iterable[int], left_out: Iterator[int]) -> Iterator[int]:
    """Yield the ascending `starts` that are not in the ascending `left_out`."""
    skip = next(left_out, -1)
    for start in starts:
        if start == skip:
            skip = next(left_out, -1)
        else:
            yield start
