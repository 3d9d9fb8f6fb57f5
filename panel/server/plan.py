"""What the leader tells the followers to compute: one plan a step, decided once."""

from __future__ import annotations

from enum import IntEnum

import msgspec


class Work(IntEnum):
    """The kinds of step."""

    IDLE = 0
    """Nothing to compute: prove that everybody is alive."""
    PREFILL = 1
    DECODE = 2
    STOP = 3


class Segment(msgspec.Struct, frozen=True, array_like=True):
    """The tokens of one sequence that go through the model in this step."""

    tokens: list[int]
    start: int
    """Position of the first of them; all before it are in the cache."""
    pages: bytes
    """The sequence's pages as native 32-bit integers, up to the last token of this step."""
    logits: bool = True
    """Prefill: whether the last token's logits are wanted. Decode: always all tokens'."""


class Plan(msgspec.Struct, frozen=True, array_like=True):
    """One step of all ranks."""

    work: Work
    segments: list[Segment] = []
    rows: int = 0
    """Decode: sequences after padding to a bucket."""
    width: int = 1
    """Decode: tokens of each sequence after padding."""
    draining: bool = False

    @property
    def logit_rows(self) -> int:
        """Rows of logits that the step computes."""
        if self.work is Work.DECODE:
            return self.rows * self.width
        return sum(segment.logits for segment in self.segments)


_encoder = msgspec.msgpack.Encoder()
_decoder = msgspec.msgpack.Decoder(Plan)


def encode_plan(plan: Plan) -> bytes:
    """Return the plan as bytes for the followers."""
    return _encoder.encode(plan)


def decode_plan(data: bytes) -> Plan:
    """Return the plan of `encode_plan`."""
    return _decoder.decode(data)
