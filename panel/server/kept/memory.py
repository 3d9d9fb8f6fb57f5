"""Memory that the weight keeper holds for one rank."""

from __future__ import annotations

import functools
import os
from typing import Protocol

from panel.server.kept.driver import Driver


class Memory(Protocol):
    """Bytes that another process can map."""

    handle: bytes
    """What opens it there."""
    descriptor: int | None
    """What opens it there, where that is a file."""

    def free(self) -> None:
        """Give it back."""


class HostMemory:
    """An anonymous file in memory: without a name, so that nothing of it can be left behind."""

    handle = b""

    def __init__(self, size: int) -> None:
        """Raises OSError."""
        self.descriptor: int | None = os.memfd_create("moepanel-weights", os.MFD_CLOEXEC)
        os.ftruncate(self.descriptor, size)

    def free(self) -> None:
        if self.descriptor is not None:
            os.close(self.descriptor)
            self.descriptor = None


class DeviceMemory:
    """Memory of a GPU."""

    descriptor: int | None = None

    def __init__(self, driver: Driver, ordinal: int, size: int) -> None:
        """Raises OSError."""
        self._driver = driver
        self._ordinal = ordinal
        driver.enter(ordinal)
        self._pointer = driver.allocate(size)
        try:
            self.handle = driver.lend(self._pointer)
        except OSError:
            driver.free(self._pointer)
            raise

    def free(self) -> None:
        self._driver.enter(self._ordinal)
        self._driver.free(self._pointer)


def allocate(ordinal: int | None, size: int) -> Memory:
    """Return memory of a GPU, by its number, or of the host. Raises OSError."""
    if ordinal is None:
        return HostMemory(size)
    return DeviceMemory(_driver(), ordinal, size)


@functools.cache
def _driver() -> Driver:
    return Driver()
