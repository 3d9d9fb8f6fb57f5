"""Rank 0's end of the socket to the front end; it never blocks a step."""

from __future__ import annotations

import socket

import msgspec

from panel.server.messages import Frames, FromEngine, ToEngine, encode
from panel.server.roster import PeerLostError

_decoder = msgspec.msgpack.Decoder(ToEngine)
_CHUNK = 1 << 18


class Channel:
    """Frames in both directions; what the front end does not take at once is kept."""

    def __init__(self, connection: socket.socket) -> None:
        connection.setblocking(False)
        self._connection = connection
        self._frames = Frames()
        self._unsent = bytearray()

    def fileno(self) -> int:
        """The file descriptor, for polling."""
        return self._connection.fileno()

    @property
    def pending(self) -> bool:
        """True while something waits to be sent."""
        return bool(self._unsent)

    def receive(self) -> list[ToEngine]:
        """Return the messages that have come in; `PeerLostError` where the front end is gone."""
        messages: list[ToEngine] = []
        while True:
            try:
                data = self._connection.recv(_CHUNK)
            except BlockingIOError:
                return messages
            except OSError:
                data = b""
            if not data:
                raise PeerLostError("the front end is gone; look in its log")
            messages += [_decoder.decode(body) for body in self._frames.feed(data)]

    def send(self, message: FromEngine) -> None:
        """Send a message, or keep it for `flush`."""
        self._unsent += encode(message)
        self.flush()

    def flush(self) -> None:
        """Send what was kept, as far as the front end takes it."""
        while self._unsent:
            try:
                sent = self._connection.send(self._unsent)
            except BlockingIOError:
                return
            except OSError:
                raise PeerLostError("the front end is gone; look in its log") from None
            del self._unsent[:sent]
