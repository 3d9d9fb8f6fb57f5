"""Frames between a rank and the weight keeper: a JSON header, a body, at most one descriptor."""

from __future__ import annotations

import json
import socket
import struct
from typing import Any, NamedTuple

ADDRESS = "MOEPANEL_WEIGHTS"
"""Environment variable with the path of the weight keeper's socket."""
_LENGTHS = struct.Struct("<IQ")


class Frame(NamedTuple):
    """What one side says."""

    header: dict[str, Any]
    body: bytes = b""
    descriptor: int | None = None


def send(connection: socket.socket, frame: Frame) -> None:
    """Send a frame whole. Raises OSError."""
    header = json.dumps(frame.header).encode()
    lengths = _LENGTHS.pack(len(header), len(frame.body))
    descriptors = [] if frame.descriptor is None else [frame.descriptor]
    # The descriptor travels with the first byte.
    sent = socket.send_fds(connection, [lengths], descriptors)
    connection.sendall(lengths[sent:] + header)
    if frame.body:
        connection.sendall(frame.body)


def receive(connection: socket.socket) -> Frame | None:
    """Return the next frame, None where the other side is gone. Raises OSError."""
    first, descriptors, _, _ = socket.recv_fds(connection, _LENGTHS.size, 1)
    lengths = _exactly(connection, _LENGTHS.size, first) if first else None
    if lengths is None:
        return None
    header_size, body_size = _LENGTHS.unpack(lengths)
    header, body = _exactly(connection, header_size), _exactly(connection, body_size)
    if header is None or body is None:
        return None
    return Frame(json.loads(header), body, descriptors[0] if descriptors else None)


def _exactly(connection: socket.socket, size: int, begun: bytes = b"") -> bytes | None:
    data = bytearray(begun)
    while len(data) < size:
        piece = connection.recv(min(size - len(data), 1 << 20))
        if not piece:
            return None
        data += piece
    return bytes(data)
