"""Memory that the ranks of a gang share: anonymous, so that nothing of it outlives them."""

from __future__ import annotations

import mmap

import torch

_ALIGNMENT = 4096


class Arena:
    """One anonymous shared mapping, made before the fork and cut into named regions.

    `regions` maps names to bytes; pages that nobody touches cost nothing.
    """

    def __init__(self, regions: dict[str, int]) -> None:
        self._bounds: dict[str, tuple[int, int]] = {}
        offset = 0
        for name, size in regions.items():
            self._bounds[name] = (offset, size)
            offset += -(-size // _ALIGNMENT) * _ALIGNMENT
        self._map = mmap.mmap(-1, offset)

    def bytes(self, name: str) -> memoryview:
        """Return the writable bytes of a region."""
        offset, size = self._bounds[name]
        return memoryview(self._map)[offset : offset + size]

    def tensor(self, name: str, dtype: torch.dtype) -> torch.Tensor:
        """Return a region as a flat tensor."""
        offset, size = self._bounds[name]
        count = size // dtype.itemsize
        return torch.frombuffer(self._map, dtype=dtype, count=count, offset=offset)
