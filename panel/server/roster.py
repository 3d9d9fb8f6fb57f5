"""Who the ranks of a gang are, and whether they live."""

from __future__ import annotations

import os
import select
import time
from collections.abc import Callable

from panel.server.heartbeat import Ledger

SLICE_SECONDS = 0.2
"""Longest sleep inside a wait: the time in which the death of a peer is noticed."""


class PeerLostError(Exception):
    """Another rank is gone or silent; the message names it."""


class Roster:
    """Who the ranks are and whether they live.

    Shared: the process ids, and who was found missing first; those who leave because of that are
    not blamed in turn. How many meetings each rank has come to, and whether it waits, is in the
    ledger.
    """

    def __init__(self, memory: memoryview, world_size: int, timeout: float, ledger: Ledger) -> None:
        cells = memory.cast("q")
        self._pids = cells[:world_size]
        self._blamed = cells[world_size:]
        self._meetings, self._waiting = ledger
        self._timeout = timeout
        self._pidfds: dict[int, int] = {}
        self._step_of: Callable[[], int] = lambda: 0
        self._interrupted: Callable[[], None] = lambda: None
        self.rank = -1

    @staticmethod
    def size(world_size: int) -> int:
        """Bytes of the shared part."""
        return 8 * (world_size + 1)

    def join(
        self, rank: int, pid: int, *, step_of: Callable[[], int], interrupted: Callable[[], None]
    ) -> None:
        """Enter this process as `rank`.

        `interrupted` is called in every slice of a wait and may raise.
        """
        self.rank = rank
        self._pids[rank] = pid
        self._step_of = step_of
        self._interrupted = interrupted

    def arrive(self) -> None:
        """Note that this rank has come to one more meeting."""
        self._meetings[self.rank] += 1

    def pidfds(self) -> dict[int, int]:
        """Return a pidfd by rank for every other rank that has joined."""
        for rank, pid in enumerate(self._pids.tolist()):
            if rank != self.rank and pid and rank not in self._pidfds:
                try:
                    self._pidfds[rank] = os.pidfd_open(pid)
                except ProcessLookupError:
                    raise self._lost(rank, "is gone") from None
        return self._pidfds

    def check(self, waited: float) -> None:
        """Raise `PeerLostError` for a dead rank, or for a missing one after the time limit."""
        self._look()
        if waited > self._timeout:
            mine = self._meetings[self.rank]
            late = [rank for rank, count in enumerate(self._meetings.tolist()) if count < mine]
            raise self._lost(late[0] if late else 0, f"has not answered for {waited:.0f} s")

    def watch(self, done: Callable[[], bool]) -> None:
        """Return once the device is `done`, looking after the peers meanwhile; it sleeps nowhere.

        After the time limit nobody is named: which rank's device stands still is not known here.
        """
        begun = looked = time.monotonic()
        while not done():
            now = time.monotonic()
            if now - looked > SLICE_SECONDS:
                self._look()
                looked = now
            if now - begun > self._timeout:
                raise PeerLostError(
                    f"the GPUs have not ended step {self._step_of()} for {now - begun:.0f} s; look "
                    "at the GPU and the stacks of each rank, and in the kernel log"
                )

    def wait(self, acquire: Callable[[bool, float], bool]) -> None:
        """Acquire a lock or semaphore in slices, looking after the peers between them."""
        if acquire(True, SLICE_SECONDS):
            return
        begun = time.monotonic() - SLICE_SECONDS
        self._waiting[self.rank] = 1
        while True:
            self.check(time.monotonic() - begun)
            if acquire(True, SLICE_SECONDS):
                self._waiting[self.rank] = 0
                return

    def _look(self) -> None:
        """Raise `PeerLostError` for a dead rank."""
        self._interrupted()
        poll = select.poll()
        ranks = {fd: rank for rank, fd in self.pidfds().items()}
        for fd in ranks:
            poll.register(fd, select.POLLIN)
        for fd, _ in poll.poll(0):
            raise self._lost(ranks[fd], "is gone")

    def _lost(self, rank: int, what: str) -> PeerLostError:
        if self._blamed[0]:
            rank = self._blamed[0] - 1
        else:
            self._blamed[0] = rank + 1
        return PeerLostError(
            f"rank {rank} (pid {self._pids[rank]}) {what} at step {self._step_of()}; "
            f"look in the log of rank {rank}"
        )
