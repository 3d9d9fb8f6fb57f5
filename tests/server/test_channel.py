"""Rank 0's socket: nothing is lost and nothing blocks when the front end is slow."""

from __future__ import annotations

import socket
from collections.abc import Iterator

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from panel.server.channel import Channel
from panel.server.messages import Abort, Frames, Generate, Step, Tokens, encode
from panel.server.roster import PeerLostError


@pytest.fixture
def ends() -> Iterator[tuple[Channel, socket.socket]]:
    near, far = socket.socketpair()
    near.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, 4096)
    far.settimeout(10)
    with near, far:
        yield Channel(near), far


@given(st.lists(st.binary(max_size=40)), st.lists(st.integers(1, 9)))
def test_frames_come_back_whole_however_they_are_cut(bodies: list[bytes], cuts: list[int]) -> None:
    stream = b"".join(len(body).to_bytes(4, "little") + body for body in bodies)
    frames = Frames()
    found: list[bytes] = []
    for cut in cuts:
        found += frames.feed(stream[:cut])
        stream = stream[cut:]
    assert found + frames.feed(stream) == bodies


def test_a_slow_reader_gets_everything_in_order(ends: tuple[Channel, socket.socket]) -> None:
    channel, far = ends
    for number in range(500):
        channel.send(Step([Tokens(str(number), list(range(100)))]))
    assert channel.pending
    frames, found = Frames(), []
    while len(found) < 500:
        found += frames.feed(far.recv(1 << 16))
        channel.flush()
    assert not channel.pending
    steps = [msgspec.msgpack.decode(body, type=Step) for body in found]
    assert [step.news[0].rid for step in steps] == [str(number) for number in range(500)]


def test_messages_are_received_without_waiting(ends: tuple[Channel, socket.socket]) -> None:
    channel, far = ends
    assert channel.receive() == []
    sent = [Generate("a", [1, 2], 5), Abort("a")]
    far.sendall(b"".join(encode(message) for message in sent))
    assert channel.receive() == sent


def test_a_closed_front_end_is_a_lost_peer(ends: tuple[Channel, socket.socket]) -> None:
    channel, far = ends
    far.close()
    with pytest.raises(PeerLostError, match="front end is gone"):
        channel.receive()
    with pytest.raises(PeerLostError, match="front end is gone"):
        channel.send(Step([]))
