"""What the weight keeper holds, for whom, and for how long.

It holds the weights of one layout (`key`). A connection is a lease: its memory is not given back
while the rank at the other end lives. A rank that asks with another key makes it forget the old
layout at once.
"""

from __future__ import annotations

import contextlib
import os
import socket
import threading
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any

from panel.server.kept.memory import Memory, allocate
from panel.server.kept.wire import Frame, receive, send

RELEASE_S = 10.0
"""How long a rank waits for those of the launch before it to be gone."""
Allocate = Callable[[int | None, int], Memory]


@dataclass(frozen=True, slots=True)
class _Held:
    """The memory of one rank."""

    memory: Memory
    size: int
    parcel: bytes = b""
    """What lies where; empty until all of it does."""
    seal: int = 0


@dataclass(frozen=True, slots=True, eq=False)
class _Lease:
    """A rank that uses what is held."""

    key: str
    rank: int


class _RefusedError(Exception):
    """Nothing is held for that rank; the message says why."""


class WeightKeeper:
    """Shared by one thread a connection."""

    def __init__(
        self, told: Callable[[dict[str, int]], None], allocate: Allocate = allocate
    ) -> None:
        """`told` is called with the figures of `_tell` whenever they change."""
        self._told = told
        self._allocate = allocate
        self._changed = threading.Condition()
        self._key = ""
        self._held: dict[int, _Held] = {}
        self._leases: set[_Lease] = set()
        self._ending = False

    def serve(self, connection: socket.socket) -> None:
        """Serve one rank until it is gone."""
        with connection, contextlib.suppress(OSError):
            asked = receive(connection)
            if asked is not None:
                self._serve(connection, asked.header)

    def end(self) -> None:
        """Lend nothing more, and return once no rank uses anything."""
        with self._changed:
            self._ending = True
            self._changed.notify_all()
            self._changed.wait_for(lambda: not self._leases)
            self._forget()

    def _serve(self, connection: socket.socket, asked: dict[str, Any]) -> None:
        rank = int(asked["rank"])
        lease = _Lease(str(asked["key"]), rank)
        try:
            self._admit(lease)
        except _RefusedError as refused:
            send(connection, Frame({"refused": str(refused)}))
            return
        try:
            held = self._hold(rank, asked["gpu"], int(asked["size"]))
            answer = {"handle": held.memory.handle.hex(), "seal": held.seal, "pid": os.getpid()}
            send(connection, Frame(answer, held.parcel, held.memory.descriptor))
            while (frame := receive(connection)) is not None:
                with self._changed:
                    seal = int(frame.header["seal"])
                    self._held[rank] = replace(self._held[rank], parcel=frame.body, seal=seal)
                    self._tell()
        except _RefusedError as refused:
            send(connection, Frame({"refused": str(refused)}))
        finally:
            with self._changed:
                self._leases.remove(lease)
                self._forget_unfinished(rank)
                self._changed.notify_all()
                self._tell()

    def _admit(self, lease: _Lease) -> None:
        """Take in a lease, once nobody is left whom it disturbs."""

        def free() -> bool:
            others = {(each.key, each.rank) for each in self._leases}
            return self._ending or not any(
                key != lease.key or rank == lease.rank for key, rank in others
            )

        with self._changed:
            if not self._changed.wait_for(free, RELEASE_S):
                raise _RefusedError("ranks of another launch still use what is kept")
            if self._ending:
                raise _RefusedError("the weight keeper is told to end")
            if self._key != lease.key:
                self._forget()
                self._key = lease.key
            self._leases.add(lease)
            self._tell()

    def _hold(self, rank: int, gpu: int | None, size: int) -> _Held:
        # Not under the lock: contexts of several GPUs are made side by side.
        held = self._held.get(rank)
        if held is not None and held.size == size:
            return held
        try:
            if held is not None:
                held.memory.free()
            fresh = _Held(self._allocate(gpu, size), size)
        except OSError as error:
            raise _RefusedError(f"{size} bytes cannot be had: {error}") from None
        with self._changed:
            self._held[rank] = fresh
            self._tell()
        return fresh

    def _forget_unfinished(self, rank: int) -> None:
        held = self._held.get(rank)
        if held is not None and not held.parcel:
            del self._held[rank]
            with contextlib.suppress(OSError):
                held.memory.free()

    def _forget(self) -> None:
        for held in self._held.values():
            with contextlib.suppress(OSError):
                held.memory.free()
        self._held.clear()
        self._key = ""
        self._tell()

    def _tell(self) -> None:
        """Tell the bytes held, for how many ranks, for how many whole, and used by how many."""
        held = self._held.values()
        self._told(
            {
                "bytes": sum(each.size for each in held),
                "ranks": len(held),
                "whole": sum(bool(each.parcel) for each in held),
                "users": len(self._leases),
            }
        )
