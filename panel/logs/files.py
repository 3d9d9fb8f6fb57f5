"""Logs as files: opened with a clear word about what is none, read by offset, also compressed.

Read by `pread`, never mapped: a mapped file that shrinks kills its reader.
"""

from __future__ import annotations

import errno
import gzip
import os
import stat
import zlib
from pathlib import Path
from typing import BinaryIO, Protocol

from panel.domain.errors import NotFoundError, PanelError, UsageError

_HEAD = 4096
_BINARY_SHARE = 0.1
_TEXT_CONTROLS = frozenset(b"\t\n\r\f\b\x1b\x07")
_STEP = 1 << 20


class LogFile(Protocol):
    """Bytes of a log by offset."""

    def size(self) -> int:
        """Return how many bytes there are by now. Raises `ReplacedError`."""

    def read(self, offset: int, count: int) -> bytes:
        """Return up to `count` bytes from `offset` on."""

    def close(self) -> None:
        """Let go of the file."""


class ReplacedError(PanelError):
    """The log is another one than before: what was known of it is void."""

    kind = "replaced"


def open_log(path: Path) -> LogFile:
    """Open a log. Raises `NotFoundError`, `UsageError` for what is no log, `PanelError`."""
    try:
        # A FIFO without a writer would block, a device might do worse.
        mode = path.stat().st_mode
        if stat.S_ISDIR(mode):
            raise UsageError(f"{path} is a folder, not a log", "name a file in it")
        if not stat.S_ISREG(mode):
            raise UsageError(f"{path} is a pipe or device", "save it to a file first")
        fd = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    except FileNotFoundError:
        raise NotFoundError(f"there is no {path}", "check the name") from None
    except PermissionError:
        raise PanelError(f"no permission to read {path}", f"sudo chmod +r {path}") from None
    except OSError as error:
        raise PanelError(f"cannot read {path}: {error.strerror}", "check the disk") from None
    head = os.pread(fd, _HEAD, 0)
    if head.startswith(b"\x1f\x8b"):
        return _Compressed(path, fd)
    if is_binary(head):
        os.close(fd)
        raise UsageError(f"{path} is a binary file, not a log", "name a text file, plain or gzip")
    return _Plain(path, fd)


def open_regular(path: Path) -> BinaryIO:
    """Open a file for its bytes. Raises OSError also for a pipe, whose opening would block."""
    fd = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
    if not stat.S_ISREG(os.fstat(fd).st_mode):
        os.close(fd)
        raise OSError(errno.EINVAL, "no regular file", str(path))
    return open(fd, "rb")


def is_binary(head: bytes) -> bool:
    """Return whether a file that begins with this is no text.

    Engines write stray control bytes, also NUL; a binary file has them everywhere.
    """
    if not head:
        return False
    controls = sum(byte < 0x20 and byte not in _TEXT_CONTROLS for byte in head)
    broken = head.decode("utf-8", "replace").count("\ufffd")
    return controls + broken > _BINARY_SHARE * len(head)


class _Plain:
    def __init__(self, path: Path, fd: int) -> None:
        self._path, self._fd = path, fd
        self._known = 0

    def size(self) -> int:
        status = os.fstat(self._fd)
        try:
            now = self._path.stat()
        except OSError:
            now = status  # Deleted while followed: its bytes live as long as we hold it.
        if (now.st_dev, now.st_ino) != (status.st_dev, status.st_ino):
            raise ReplacedError(f"{self._path} was replaced", "it is read again from the start")
        if status.st_size < self._known:
            raise ReplacedError(f"{self._path} shrank", "it is read again from the start")
        self._known = status.st_size
        return self._known

    def read(self, offset: int, count: int) -> bytes:
        return os.pread(self._fd, count, offset)

    def close(self) -> None:
        os.close(self._fd)


class _Compressed:
    """A gzip file; going back starts over, so that readers had better go forward."""

    def __init__(self, path: Path, fd: int) -> None:
        self._path = path
        self._raw = os.fdopen(fd, "rb")
        self._file = gzip.GzipFile(fileobj=self._raw)
        self._size: int | None = None

    def size(self) -> int:
        if self._size is None:
            self._size = self._measure()
        return self._size

    def _measure(self) -> int:
        size = 0
        while step := len(self.read(size, _STEP)):
            size += step
        return size

    def read(self, offset: int, count: int) -> bytes:
        found = bytearray()
        try:
            self._file.seek(offset)
            while len(found) < count and (chunk := self._file.read1(count - len(found))):
                found += chunk
        except EOFError:
            pass  # Cut off, as by a node that died while compressing.
        except (OSError, zlib.error) as error:
            raise PanelError(
                f"{self._path} is damaged: {error}", "try zcat to save a part"
            ) from None
        return bytes(found)

    def close(self) -> None:
        self._file.close()
        self._raw.close()
