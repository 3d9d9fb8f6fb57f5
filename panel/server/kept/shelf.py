"""Memory of the weight keeper as one rank sees it, on which it lays its weights."""

from __future__ import annotations

import mmap
import os
import threading
from typing import Any, Protocol

import torch

from panel.server.kept.driver import Driver

_ALIGNMENT = 512
"""As torch's own allocator aligns."""
BLOCK = 1 << 16
"""A shelf is a whole number of blocks, whose sums make its seal."""


class Region(Protocol):
    """Mapped bytes."""

    pointer: int

    def bytes(self, offset: int, count: int) -> torch.Tensor:
        """Return a part, uint8 [count], with a storage of its own."""
        ...


class HostRegion:
    """A file in memory."""

    def __init__(self, descriptor: int, size: int) -> None:
        """Map it and close the descriptor. Raises OSError."""
        try:
            self._map = mmap.mmap(descriptor, size)
        finally:
            os.close(descriptor)
        self.pointer = self.bytes(0, 1).data_ptr()

    def bytes(self, offset: int, count: int) -> torch.Tensor:
        return torch.frombuffer(self._map, dtype=torch.uint8, count=count, offset=offset)


class DeviceRegion:
    """Memory of a GPU."""

    def __init__(self, handle: bytes, device: torch.device) -> None:
        """Map it. Raises OSError."""
        # The driver maps it into the context in which torch works.
        torch.zeros(1, device=device)
        self._device = device
        self.pointer = Driver().borrow(handle)

    def bytes(self, offset: int, count: int) -> torch.Tensor:
        return bytes_at(self.pointer + offset, count, self._device)


def bytes_at(pointer: int, count: int, device: torch.device) -> torch.Tensor:
    """Return memory of a GPU as a tensor that does not own it, uint8 [count]."""
    return torch.as_tensor(_Span(pointer, count), device=device)


class _Span:
    def __init__(self, pointer: int, count: int) -> None:
        self.__cuda_array_interface__: dict[str, Any] = {
            "shape": (count,),
            "typestr": "|u1",
            "data": (pointer, False),
            "version": 3,
        }


class Shelf:
    """Filled from its beginning, by several threads."""

    def __init__(self, region: Region, size: int, device: torch.device) -> None:
        self.region = region
        self.size = size
        self.device = device
        self._used = 0
        self._lock = threading.Lock()

    def lay(self, tensor: torch.Tensor, dtype: torch.dtype) -> torch.Tensor:
        """Return the tensor in this memory, in its own order of elements; on a GPU contiguous.

        `MemoryError` where there is no room.
        """
        order = torch.preserve_format if self.device.type == "cpu" else torch.contiguous_format
        like = torch.empty_like(tensor, dtype=dtype, device="meta", memory_format=order)
        if not like.numel():
            return torch.empty_strided(like.shape, like.stride(), dtype=dtype, device=self.device)
        last = sum((n - 1) * step for n, step in zip(like.shape, like.stride(), strict=True))
        count = (last + 1) * dtype.itemsize
        with self._lock:
            begin, end = self._used, self._used + count
            if end > self.size:
                raise MemoryError(f"{self.size} bytes of kept memory do not hold the weights")
            self._used = -(-end // _ALIGNMENT) * _ALIGNMENT
        place = self.region.bytes(begin, count).view(dtype).as_strided(like.shape, like.stride())
        return place.copy_(tensor)

    def seal(self) -> int:
        """Return a number that says whether anything on the shelf has changed its value or place.

        The sum of its 64-bit words by block, each block with a weight of its own.
        """
        words = self.region.bytes(0, self.size).view(torch.int64).view(-1, BLOCK // 8)
        sums = words.sum(1)
        weights = torch.arange(1, 2 * len(sums), 2, device=sums.device)
        return int((sums * weights).sum())
