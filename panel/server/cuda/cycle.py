"""A cycle's input for the kernels of a draft head, laid out on the host."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from panel.server.cuda.layout import Arrays
from panel.server.plan import Plan, Segment

Tokens = npt.NDArray[np.int64]


@dataclass(frozen=True, slots=True)
class Cycle:
    """The sequences of a cycle, padded to `rows`."""

    segments: Sequence[Segment]
    rows: int
    width: int
    """Tokens of a sequence that are verified at most, as its plan says."""

    @classmethod
    def of(cls, plan: Plan, owned: list[int]) -> Cycle:
        """Return the cycle of a plan's segments `owned`."""
        return cls([plan.decoding[number] for number in owned], plan.rows, plan.width)

    def asked(self) -> Arrays:
        """Return what the host alone knows of a `Course`."""
        sizes, held = np.zeros((2, self.rows), np.int64)
        sizes[: len(self.segments)] = [len(segment.tokens) for segment in self.segments]
        held[: len(self.segments)] = [_held(segment) for segment in self.segments]
        return {"sizes": sizes, "held": held}

    def course(self, width: int) -> Arrays:
        """Return the rest of a `Course` with `width` tokens to see at most."""
        count = len(self.segments)
        starts, seats, seen = np.zeros((3, self.rows), np.int64)
        starts[:count] = [segment.start for segment in self.segments]
        seats[:count] = [segment.seat for segment in self.segments]
        seen[:count] = [1 + len(segment.fresh) for segment in self.segments]
        tokens = np.zeros((width, self.rows), np.int64)
        for row, segment in enumerate(self.segments):
            known = [segment.tokens[0], *reversed(segment.fresh)]
            tokens[: len(known), row] = known
        return {"starts": starts, "seats": seats, "seen": seen, "tokens": tokens}

    def table(self) -> npt.NDArray[np.int32]:
        """Return the pages of the sequences, [rows, as many as one has at most]."""
        most = max(map(_held, self.segments), default=1)
        table = np.zeros((self.rows, most), np.int32)
        for row, segment in enumerate(self.segments):
            table[row, : _held(segment)] = np.frombuffer(segment.pages, np.int32)
        return table

    def asks_alike(self, later: Cycle) -> bool:
        """True where `asked` and `table` of both are the same, given that one goes on."""
        pairs = zip(self.segments, later.segments, strict=True)
        return all(
            len(old.tokens) == len(new.tokens) and old.pages == new.pages for old, new in pairs
        )

    def foresees(self, later: Cycle, width: int, page_size: int) -> bool:
        """True where a cycle that this one goes on to verifies `width` tokens of each sequence.

        And where the pages of all of them were known.
        """
        pairs = zip(self.segments, later.segments, strict=True)
        return later.width == width and all(
            len(new.tokens) == width and new.start + width <= _held(old) * page_size
            for old, new in pairs
        )

    def goes_on(self, later: Cycle, sampled: Tokens, page_size: int) -> bool:
        """True where what the head did after this cycle by itself is what `later` asks for.

        The same sequences have to be in the same rows, each further by what was `sampled` for it,
        [sequences * width], with pages known then for all that the head sees. A new text that finds
        the seat and the pages of one that ended goes on with another token.
        """
        rows = zip(self.segments, later.segments, sampled.reshape(-1, self.width), strict=False)
        return (
            self.rows == later.rows
            and len(self.segments) == len(later.segments)
            and all(_goes_on(old, new, found, page_size) for old, new, found in rows)
        )


def _goes_on(old: Segment, new: Segment, sampled: Tokens, page_size: int) -> bool:
    further = new.start - old.start
    return (
        new.seat == old.seat
        and 1 <= further <= len(old.tokens)
        and new.tokens[0] == sampled[further - 1]
        and len(new.fresh) == further - 1
        and new.pages.startswith(old.pages)
        and new.start + max(1, len(new.tokens) - 1) <= _held(old) * page_size
    )


def _held(segment: Segment) -> int:
    """Return how many pages the sequence has."""
    return len(segment.pages) // 4
