"""Which rows of a step the draft head sees at once, and which are kept for later."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np

from panel.server.draft.places import Ints, Places
from panel.server.plan import Segment


class Kept(NamedTuple):
    """Features that are seen later."""

    rows: Ints
    """Of the step."""
    places: Ints
    """Where they go."""


class Shown(NamedTuple):
    """Tokens that the head sees together with the features before them."""

    tokens: Ints
    positions: Ints
    slots: Ints
    rows: Ints
    """Rows of the step whose features those are, where the step has them."""
    firsts: Ints
    """Of these tokens those whose feature was kept from a step before."""
    places: Ints
    """Where that is, for each of `firsts`."""


@dataclass(frozen=True, slots=True)
class Seen:
    """The segments of a rank in a step: first those that decode, `width` rows each."""

    places: Places
    decoding: Sequence[Segment]
    prefilling: Sequence[Segment]
    count: int
    """Sequences that decode after padding."""
    width: int

    def kept(self) -> Kept:
        """Return all rows that decode, and of prompts the last ones of the step and of pages."""
        rows, places = [], []
        for begin, segment, decodes in self._segments():
            positions = segment.start + np.arange(len(segment.tokens))
            wanted = (positions + 1) % self.places.page_size == 0
            wanted[-1] = True
            wanted |= decodes
            rows.append(begin + np.flatnonzero(wanted))
            places.append(self.places.of(segment, positions[wanted]))
        return Kept(_joined(rows), _joined(places))

    def shown(self) -> Shown:
        """Return all tokens of the step: in one with prompts nothing is left open."""
        tokens: list[int] = []
        positions, slots, rows, firsts, places = [], [], [], [], []
        for begin, segment, _ in self._segments():
            size = len(segment.tokens)
            firsts.append(len(tokens))
            tokens += segment.tokens
            positions.append(segment.start + np.arange(size))
            slots.append(self.places.slots(segment, positions[-1]))
            rows.append(np.maximum(begin + np.arange(size) - 1, 0))
            places.append(self.places.of(segment, np.array([segment.start - 1])))
        return Shown(
            np.array(tokens, np.int64),
            _joined(positions),
            _joined(slots),
            _joined(rows),
            np.array(firsts, np.int64),
            _joined(places),
        )

    def fresh(self) -> Shown:
        """Return the tokens that have become known since the head's cache was extended last."""
        tokens: list[int] = []
        positions, slots, places = [], [], []
        for segment in self.decoding:
            tokens += [*segment.fresh, segment.tokens[0]]
            known = np.arange(segment.start - len(segment.fresh), segment.start + 1)
            positions.append(known)
            slots.append(self.places.slots(segment, known))
            places.append(self.places.of(segment, known - 1))
        none = np.empty(0, np.int64)
        every = np.arange(len(tokens))
        return Shown(
            np.array(tokens, np.int64),
            _joined(positions),
            _joined(slots),
            none,
            every,
            _joined(places),
        )

    def last(self) -> Ints:
        """Return where the feature before each sequence's first token is; 0 for padding."""
        places = np.zeros(self.count, np.int64)
        for row, segment in enumerate(self.decoding):
            places[row] = self.places.of(segment, np.array([segment.start - 1]))[0]
        return places

    def _segments(self) -> Iterator[tuple[int, Segment, bool]]:
        """Yield the row where each segment begins, the segment, and whether it decodes."""
        for local, segment in enumerate(self.decoding):
            yield local * self.width, segment, True
        begin = self.count * self.width
        for segment in self.prefilling:
            yield begin, segment, False
            begin += len(segment.tokens)


def _joined(pieces: list[Ints]) -> Ints:
    return np.concatenate(pieces) if pieces else np.empty(0, np.int64)
