"""Which lines of a large log deserve a look.

A log of millions of lines has a few hundred shapes: its lines without digits and hexadecimal
letters. Each shape is judged once, by one regular expression over bytes; whatever has a shape known
to say nothing is passed over without being decoded.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator

_NUMBERS = b"0123456789abcdef"
_KNOWN = 1 << 16
"""Shapes to remember; logs that print text of users have no end of them."""
_SHOWN = 200
"""Lines of one shape that are looked at: a flood says nothing new after that."""


class Sieve:
    """Keeps what it learned between the chunks of one log."""

    def __init__(self, hot: re.Pattern[bytes]) -> None:
        self._hot = hot
        self._dull: set[bytes] = set()
        self._seen: dict[bytes, int] = {}

    def pick(self, block: bytes, lines: list[bytes]) -> list[int]:
        """Return the indices of the lines of `block` (it, split at newlines) worth a look."""
        shapes = block.translate(None, _NUMBERS).split(b"\n")
        fresh = set(shapes) - self._dull
        if not fresh:
            return []
        return list(self._hot_among(shapes, lines, fresh))

    def _hot_among(
        self, shapes: Iterable[bytes], lines: list[bytes], fresh: set[bytes]
    ) -> Iterator[int]:
        for index, shape in enumerate(shapes):
            if shape not in fresh:
                continue
            count = self._seen.get(shape)
            if count is None:
                if not self._hot.search(lines[index]):
                    fresh.discard(shape)
                    self._remember(shape)
                    continue
                count = 0
            if count >= _SHOWN:
                fresh.discard(shape)
                self._remember(shape)
                continue
            self._seen[shape] = count + 1
            yield index

    def _remember(self, shape: bytes) -> None:
        if len(self._dull) >= _KNOWN:
            self._dull.clear()
        self._dull.add(shape)
