"""What the leader tells the followers to compute: one plan a step, decided once.

Where the device samples, a plan is made before the tokens of the step before it are known here. In
it `-1 - n` stands for the nth token which that step samples.
"""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from enum import IntEnum

import msgspec
from msgspec import structs


class Work(IntEnum):
    """The kinds of step."""

    IDLE = 0
    """Nothing to compute: prove that everybody is alive."""
    PREFILL = 1
    DECODE = 2
    STOP = 3
    MIXED = 4
    """Some sequences decode, the others prefill."""
    REBALANCE = 5
    """No tokens: put the experts where their load asks for them."""


class Segment(msgspec.Struct, frozen=True, array_like=True):
    """The tokens of one sequence that go through the model in this step."""

    tokens: list[int]
    start: int
    """Position of the first of them; all before it are in the cache."""
    pages: bytes
    """The sequence's pages as native 32-bit integers, up to the last token of this step."""
    logits: bool = True
    """Prefill: whether the last token's logits are wanted. Decode: always all tokens'."""
    owner: int = 0
    """Under data-parallel attention the rank that computes the segment and caches it."""
    seat: int = 0
    """With a draft head: where it keeps what it saw of the sequence last."""
    fresh: list[int] = []
    """Decode with a draft head: the tokens before `start` that are not in the head's cache."""
    scored: bool = False
    """Prefill: whether all tokens' logits are wanted."""

    @property
    def prefill_rows(self) -> int:
        """Rows of logits of a segment that prefills."""
        return len(self.tokens) if self.scored else int(self.logits)


class Plan(msgspec.Struct, frozen=True, array_like=True):
    """One step of all ranks."""

    work: Work
    segments: list[Segment] = []
    """Those that decode come first."""
    rows: int = 0
    """Decoding sequences after padding to a bucket; under data-parallel attention of each rank."""
    width: int = 1
    """Tokens of each decoding sequence after padding."""
    extends: bool = False
    """Decode with a draft head: bring the head's cache up to date. Tokens that follow the first of
    a segment are then drafted in this very step, whatever stands in their place."""
    draining: bool = False
    decodes: int = 0
    """Mixed: how many of the segments decode."""
    traced: bool = False
    """A step that is run again to find out which rank's part of it is not finite."""
    on_device: bool = False
    """Rank 0's device samples the tokens, and all devices learn them."""

    @property
    def decoding(self) -> Sequence[Segment]:
        """The segments that decode, `width` tokens each after padding."""
        return self.segments[: self._decodes]

    @property
    def prefilling(self) -> Sequence[Segment]:
        """The segments that prefill."""
        return self.segments[self._decodes :]

    @property
    def logit_begins(self) -> Sequence[int]:
        """For each segment that is sampled from, in order: the row of its first logits.

        A decoding segment has `width` rows, a prefilling one a single row: that of its last token.
        """
        begins = range(0, self._decodes * self.width, self.width)
        if self.work is Work.DECODE:
            return begins
        return [*begins] + [
            begin + segment.prefill_rows - 1
            for segment, begin in zip(self.prefilling, self.prefill_begins, strict=True)
            if segment.logits
        ]

    @property
    def prefill_begins(self) -> list[int]:
        """For each prefilling segment: the row where its logits begin, if it has any."""
        sizes = [segment.prefill_rows for segment in self.prefilling]
        return list(itertools.accumulate(sizes, initial=self._decodes * self.width))[:-1]

    def rows_of(self, owner: int) -> list[int]:
        """Return the rows of the logits of an owner's segments, in the order of the segments."""
        rows = [
            number * self.width + step
            for number, segment in enumerate(self.decoding)
            if segment.owner == owner
            for step in range(self.width)
        ]
        for segment, begin in zip(self.prefilling, self.prefill_begins, strict=True):
            if segment.owner == owner:
                rows += range(begin, begin + segment.prefill_rows)
        return rows

    @property
    def _decodes(self) -> int:
        if self.work is Work.DECODE:
            return len(self.segments)
        return self.decodes


_encoder = msgspec.msgpack.Encoder()
_decoder = msgspec.msgpack.Decoder(Plan)


def encode_plan(plan: Plan) -> bytes:
    """Return the plan as bytes for the followers."""
    return _encoder.encode(plan)


def decode_plan(data: bytes) -> Plan:
    """Return the plan of `encode_plan`."""
    return _decoder.decode(data)


def with_sampled(plan: Plan, sampled: Sequence[int]) -> Plan:
    """Return the plan with all its tokens, once those of the step before it are known."""
    segments = [
        structs.replace(
            each, tokens=[token if token >= 0 else sampled[-1 - token] for token in each.tokens]
        )
        for each in plan.segments
    ]
    return structs.replace(plan, segments=segments)


def blank_decode(rows: int, width: int) -> Plan:
    """Return a decode plan that touches nobody's cache."""
    return Plan(Work.DECODE, [Segment([0], 0, bytes(4))], rows=rows, width=width)


def blank_prefill(tokens: int, page_size: int) -> Plan:
    """Return a prefill plan of `tokens` tokens that touches nobody's cache."""
    pages = bytes(4 * -(-tokens // page_size))
    return Plan(Work.PREFILL, [Segment([0] * tokens, 0, pages)])
