"""The few calls of the CUDA driver by which one process lends another memory of a GPU.

By ctypes: the weight keeper does not import torch. See the driver's manual, "Memory Management",
for `cuIpcGetMemHandle` and `cuIpcOpenMemHandle`.
"""

from __future__ import annotations

import ctypes
from typing import Any

HANDLE_BYTES = 64
_LAZY_PEER_ACCESS = 1


class _Handle(ctypes.Structure):
    _fields_ = (("reserved", ctypes.c_char * HANDLE_BYTES),)


class Driver:
    """The driver of this machine. Every call raises OSError with the driver's own word for it."""

    def __init__(self, library: Any = None) -> None:
        """`library` stands in for `libcuda.so.1` in tests."""
        self._library = library or ctypes.CDLL("libcuda.so.1")
        self._call("cuInit", 0)

    def enter(self, ordinal: int) -> None:
        """Work with a GPU from here on, in this thread."""
        device, context = ctypes.c_int(), ctypes.c_void_p()
        self._call("cuDeviceGet", ctypes.byref(device), ordinal)
        self._call("cuDevicePrimaryCtxRetain", ctypes.byref(context), device)
        self._call("cuCtxSetCurrent", context)

    def allocate(self, size: int) -> int:
        """Return the address of memory of this many bytes."""
        pointer = ctypes.c_uint64()
        self._call("cuMemAlloc_v2", ctypes.byref(pointer), ctypes.c_size_t(size))
        return pointer.value

    def free(self, pointer: int) -> None:
        """Give memory back."""
        self._call("cuMemFree_v2", ctypes.c_uint64(pointer))

    def lend(self, pointer: int) -> bytes:
        """Return what another process opens this memory with."""
        handle = _Handle()
        self._call("cuIpcGetMemHandle", ctypes.byref(handle), ctypes.c_uint64(pointer))
        return bytes(handle)

    def borrow(self, handle: bytes) -> int:
        """Return where memory lent by another process is, in the context of this thread."""
        pointer = ctypes.c_uint64()
        self._call(
            "cuIpcOpenMemHandle_v2",
            ctypes.byref(pointer),
            _Handle.from_buffer_copy(handle),
            ctypes.c_uint(_LAZY_PEER_ACCESS),
        )
        return pointer.value

    def _call(self, name: str, *arguments: Any) -> None:
        code = getattr(self._library, name)(*arguments)
        if code:
            text = ctypes.c_char_p()
            self._library.cuGetErrorName(code, ctypes.byref(text))
            word = text.value.decode() if text.value else f"error {code}"
            raise OSError(f"{name}: {word}")
