"""What the front end sends to rank 0."""

from __future__ import annotations

import asyncio

import msgspec

from panel.server.frontend.link import Link
from panel.server.messages import Frames, Generate, ToEngine


class Pipe(asyncio.WriteTransport):
    """Keeps what is written, write by write."""

    def __init__(self) -> None:
        super().__init__()
        self.writes: list[bytes] = []

    def write(self, data: bytes | bytearray | memoryview) -> None:
        self.writes.append(bytes(data))


async def test_the_prompts_of_a_request_go_out_in_one_write() -> None:
    """Rank 0 would begin with the first alone if it saw that one earlier."""
    link, pipe = Link(), Pipe()
    link.connection_made(pipe)
    sequences = [Generate(f"r.{number}", [number], 1) for number in range(8)]
    with link.request("r", sequences):
        (written,) = pipe.writes
    decode = msgspec.msgpack.Decoder(ToEngine).decode
    assert [decode(body) for body in Frames().feed(written)] == sequences
