"""The snapshot that everybody sees, numbered by its changes."""

from __future__ import annotations

import asyncio

import msgspec

from panel.domain.snapshot import Snapshot


class Publisher:
    """Keeps the present snapshot and wakes those who wait for the next one."""

    def __init__(self) -> None:
        self.snapshot: Snapshot | None = None
        self.closed = False
        self._encoded: bytes | None = None
        self._changed = asyncio.Event()

    @property
    def seq(self) -> int:
        """Number of the snapshot; 0 before the first."""
        return self.snapshot.seq if self.snapshot else 0

    @property
    def encoded(self) -> bytes:
        """The snapshot as JSON, encoded once however many ask for it."""
        if self._encoded is None:
            self._encoded = msgspec.json.encode(self.snapshot)
        return self._encoded

    def publish(self, snapshot: Snapshot) -> None:
        """Show a snapshot, whose own number is ignored. Passing time alone is no change."""
        before = self.snapshot
        changed = before is None or _content(snapshot) != _content(before)
        self.snapshot = msgspec.structs.replace(snapshot, seq=self.seq + changed)
        self._encoded = None
        if changed:
            self._wake()

    async def wait_newer(self, seq: int, timeout: float) -> bool:
        """Return True once there is a snapshot newer than `seq`, False after `timeout` seconds."""
        deadline = asyncio.get_running_loop().time() + timeout
        while self.seq <= seq and not self.closed:
            try:
                async with asyncio.timeout_at(deadline):
                    await self._changed.wait()
            except TimeoutError:
                return False
        return self.seq > seq

    def close(self) -> None:
        """Let everybody who waits go."""
        self.closed = True
        self._wake()

    def _wake(self) -> None:
        # Those that wait hold the old event; who comes later waits for the next change.
        changed, self._changed = self._changed, asyncio.Event()
        changed.set()


def _content(snapshot: Snapshot) -> Snapshot:
    launch = snapshot.launch
    still = None if launch is None else msgspec.structs.replace(launch, t=0.0)
    return msgspec.structs.replace(snapshot, seq=0, launch=still)
