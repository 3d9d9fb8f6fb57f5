"""What the two APIs have in common on the wire."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

import msgspec

from panel.server.frontend.choice import Piece
from panel.server.frontend.usage import Usage

DONE = b"data: [DONE]\n\n"

_encoder = msgspec.json.Encoder()


class Format(Protocol):
    """How one API writes the answer to one request."""

    def opening(self) -> Sequence[msgspec.Struct]:
        """Return the chunks that come before the first piece."""

    def chunk(self, piece: Piece) -> msgspec.Struct:
        """Return the chunk of a streamed piece."""

    def closing(self, usage: Usage) -> msgspec.Struct:
        """Return the chunk that reports the usage of a stream."""

    def answer(self, pieces: Sequence[Piece], usage: Usage) -> msgspec.Struct:
        """Return the whole answer; one piece a choice, in order."""


def encode(body: msgspec.Struct) -> bytes:
    """Return the JSON of an answer."""
    return _encoder.encode(body)


def event(data: bytes) -> bytes:
    """Return a server-sent event."""
    return b"data: " + data + b"\n\n"
