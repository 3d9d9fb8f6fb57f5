"""Many small arrays to the device in one copy."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
import torch

from panel.server.cuda.layout import Arrays

Table = npt.NDArray[np.int32]

_ALIGNMENT = 16


@dataclass(frozen=True, slots=True)
class Uploaded:
    """Arrays on the device, as views of one piece of memory."""

    memory: torch.Tensor
    """uint8"""
    views: dict[str, torch.Tensor]

    @classmethod
    def like(cls, arrays: Arrays, device: torch.device) -> Uploaded:
        """Return memory for arrays of these shapes; nothing is copied."""
        offsets, size = _offsets(arrays)
        memory = torch.empty(size, dtype=torch.uint8, device=device)
        views = {
            name: memory[offsets[name] : offsets[name] + array.nbytes]
            .view(torch.from_numpy(np.empty(0, array.dtype)).dtype)
            .view(array.shape)
            for name, array in arrays.items()
        }
        return cls(memory, views)

    def fill(self, arrays: Arrays) -> None:
        """Copy arrays of the same names and shapes to the device, without waiting for it."""
        offsets, size = _offsets(arrays)
        # Pinned memory comes from torch's cache, which keeps it until the copy is done.
        staging = torch.empty(size, dtype=torch.uint8, pin_memory=self.memory.is_cuda)
        host = staging.numpy().data
        for name, array in arrays.items():
            begin = offsets[name]
            host[begin : begin + array.nbytes] = array.tobytes()
        self.memory.copy_(staging, non_blocking=True)


@dataclass(frozen=True, slots=True)
class Inputs:
    """What a graph reads of a step."""

    arrays: Uploaded
    table: torch.Tensor
    """Page table for sequences of any length, int32 [sequences, pages]."""
    known: Table
    """What it holds, on the host."""

    @classmethod
    def of(
        cls, arrays: Arrays, table: Table, device: torch.device, pages: int | None = None
    ) -> Inputs:
        """Return inputs on the device, with room for so many pages of each sequence."""
        rows, known = table.shape
        room = torch.zeros(rows, pages or known, dtype=torch.int32, device=device)
        inputs = cls(Uploaded.like(arrays, device), room, np.zeros(room.shape, np.int32))
        inputs.fill(arrays, table)
        return inputs

    def beside(self, arrays: Arrays) -> Inputs:
        """Return inputs of other arrays and the same table; nothing is copied."""
        return Inputs(Uploaded.like(arrays, self.table.device), self.table, self.known)

    def fill(self, arrays: Arrays, table: Table) -> None:
        """Copy a step's input to where the graph reads it, without waiting for the device."""
        self.arrays.fill(arrays)
        known = self.known[:, : table.shape[1]]
        if not np.array_equal(known, table):
            known[:] = table
            there = upload({"table": table}, self.table.device).views["table"]
            self.table[:, : table.shape[1]].copy_(there)


def upload(arrays: Arrays, device: torch.device) -> Uploaded:
    """Return the arrays on the device."""
    uploaded = Uploaded.like(arrays, device)
    uploaded.fill(arrays)
    return uploaded


def _offsets(arrays: Arrays) -> tuple[dict[str, int], int]:
    offsets = {}
    size = 0
    for name, array in arrays.items():
        offsets[name] = size
        size += -(-array.nbytes // _ALIGNMENT) * _ALIGNMENT
    return offsets, size
