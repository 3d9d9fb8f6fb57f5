"""What Linux offers and the standard library does not wrap: subreaper, inotify, holes."""

from __future__ import annotations

import ctypes
import os

_PR_SET_CHILD_SUBREAPER = 36
_FALLOC_FL_KEEP_SIZE = 0x01
_FALLOC_FL_PUNCH_HOLE = 0x02
_IN_MODIFY = 0x00000002
_IN_ONESHOT = 0x80000000

_libc = ctypes.CDLL(None, use_errno=True)


def become_subreaper() -> None:
    """Make orphans below this process its children. Raises OSError."""
    zero = ctypes.c_ulong(0)
    _check(_libc.prctl(_PR_SET_CHILD_SUBREAPER, ctypes.c_ulong(1), zero, zero, zero))


def inotify() -> int:
    """Return a new non-blocking inotify descriptor. Raises OSError."""
    return _check(_libc.inotify_init1(os.O_CLOEXEC | os.O_NONBLOCK))


def notify_next_write(inotify_fd: int, path: str) -> None:
    """Report the next write to the file at `path` once, then forget the file. Raises OSError."""
    mask = ctypes.c_uint32(_IN_MODIFY | _IN_ONESHOT)
    _check(_libc.inotify_add_watch(inotify_fd, os.fsencode(path), mask))


def punch_hole(fd: int, start: int, end: int) -> None:
    """Give back the space of these bytes; they read as zeros, and the file keeps its size.

    Raises OSError, where the file system cannot.
    """
    mode = _FALLOC_FL_KEEP_SIZE | _FALLOC_FL_PUNCH_HOLE
    _check(_libc.fallocate(fd, mode, ctypes.c_int64(start), ctypes.c_int64(end - start)))


def _check(result: int) -> int:
    if result < 0:
        code = ctypes.get_errno()
        raise OSError(code, os.strerror(code))
    return result
