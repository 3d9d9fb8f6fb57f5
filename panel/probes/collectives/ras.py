"""NCCL's RAS service: a thread in each process, one of which answers on a local port."""

from __future__ import annotations

import socket
import time

PORT = 28028
_PROTOCOL = 2
_CHUNK = 1 << 16


class RasError(Exception):
    """There is no answer, and why."""


def ask(address: tuple[str, int], *, json: bool, peer_timeout: int = 3, seconds: float = 12) -> str:
    """Return the verbose status of every communicator, as JSON where this NCCL can write it.

    `peer_timeout` is how long NCCL waits for each of its processes, `seconds` how long we wait in
    all. Raises `RasError`, also where JSON is wanted of a version that writes text only.
    """
    deadline = time.monotonic() + seconds
    try:
        with socket.create_connection(address, timeout=1) as wire:
            # A process that hangs in C answers all the same: the service has its own thread.
            wire.settimeout(seconds)
            _command(wire, f"CLIENT PROTOCOL {_PROTOCOL}", "SERVER PROTOCOL")
            _command(wire, f"TIMEOUT {peer_timeout}", "OK")
            if json:
                _command(wire, "SET FORMAT json", "OK")
            wire.sendall(b"VERBOSE STATUS\n")
            return _rest(wire, deadline)
    except OSError as error:
        raise RasError(f"{address[0]}:{address[1]}: {error.strerror or error}") from None


def _command(wire: socket.socket, words: str, expected: str) -> None:
    wire.sendall(words.encode() + b"\n")
    answer = b""
    while not answer.endswith(b"\n"):
        data = wire.recv(256)
        if not data:
            raise RasError(f"NCCL hung up after {words!r}")
        answer += data
    if not answer.upper().startswith(expected.encode()):
        raise RasError(f"NCCL answered {answer.decode(errors='replace').strip()!r} to {words!r}")


def _rest(wire: socket.socket, deadline: float) -> str:
    chunks: list[bytes] = []
    while (left := deadline - time.monotonic()) > 0:
        wire.settimeout(left)
        data = wire.recv(_CHUNK)
        if not data:
            return b"".join(chunks).decode(errors="replace")
        chunks.append(data)
    raise RasError("NCCL did not finish its answer in time")
