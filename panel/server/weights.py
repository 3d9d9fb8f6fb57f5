"""Where tensors come from: slices of safetensors files, or seeded random numbers."""

from __future__ import annotations

import hashlib
import threading
from pathlib import Path
from typing import Protocol

import torch
from safetensors import SafetensorError, safe_open

from panel.server.checkpoint import Names, describe_damage, tensor_files
from panel.server.shape import ModelError

Part = tuple[slice, ...]
"""What of a tensor is wanted: a slice for each of its leading dimensions."""

_HOST = torch.device("cpu")
_FLOATS = (torch.float32, torch.bfloat16, torch.float16)


class WeightSource(Protocol):
    """Gives parts of tensors, which go by the names of the text model alone."""

    bytes_read: int

    def get(self, name: str, shape: tuple[int, ...], part: Part = ()) -> torch.Tensor:
        """Return `part` of the tensor `name`, whose whole shape is `shape`.

        It is on the source's device, in the stored type or, where that has scales, in float32. May
        be called by several threads. It may be a view of a mapped file.
        """
        ...


class SafetensorsSource:
    """A Hugging Face checkpoint folder; only the asked slices are read."""

    def __init__(
        self,
        folder: Path,
        fp8_block: tuple[int, int] | None = None,
        device: torch.device = _HOST,
        names: Names | None = None,
    ) -> None:
        """`fp8_block`: rows and columns that share a scale where weights are FP8.

        `names`: how the checkpoint calls the tensors; by default as they themselves show.
        """
        self.bytes_read = 0
        self._folder = folder
        self._device = device
        self._lock = threading.Lock()
        self._fp8_block = fp8_block
        self._file_of = tensor_files(folder)
        self._names = names or Names.found_in(self._file_of)
        self._open: dict[Path, safe_open] = {}

    def get(self, name: str, shape: tuple[int, ...], part: Part = ()) -> torch.Tensor:
        stored_name = self._names.stored(name)
        path = self._file(stored_name, shape)
        tensor = self._read(path, stored_name, shape, part)
        if tensor.dtype is torch.float8_e4m3fn and self._fp8_block is not None:
            return self._scaled(tensor, stored_name, shape, part, self._fp8_block)
        if tensor.dtype not in _FLOATS:
            raise ModelError(f"{path}: tensor {stored_name} is {tensor.dtype}, which is not served")
        return tensor

    def _scaled(
        self,
        tensor: torch.Tensor,
        name: str,
        shape: tuple[int, ...],
        part: Part,
        block: tuple[int, int],
    ) -> torch.Tensor:
        """Return FP8 weights times the scales of their blocks."""
        name = f"{name}_scale_inv"
        sizes = tuple(-(-size // step) for size, step in zip(shape, block, strict=True))
        whole = [range(size)[piece] for size, piece in zip(shape, _every(part, 2), strict=True)]
        blocks = tuple(
            slice(piece.start // step, -(-piece.stop // step))
            for piece, step in zip(whole, block, strict=True)
        )
        scales = self._read(self._file(name, sizes), name, sizes, blocks).float()
        for dimension, (piece, step) in enumerate(zip(whole, block, strict=True)):
            numbers = torch.arange(piece.start, piece.stop, device=self._device) // step
            numbers -= piece.start // step
            scales = scales.index_select(dimension, numbers)
        return tensor.float() * scales

    def _file(self, name: str, shape: tuple[int, ...]) -> Path:
        path = self._file_of.get(name)
        if path is None:
            raise ModelError(f"{self._folder}: no file holds tensor {name}, shape {list(shape)}")
        return path

    def _read(self, path: Path, name: str, shape: tuple[int, ...], part: Part) -> torch.Tensor:
        try:
            with self._lock:
                if path not in self._open:
                    self._open[path] = safe_open(path, framework="pt")
            stored = self._open[path].get_tensor(name)  # type: ignore[no-untyped-call]
        except (SafetensorError, OSError) as error:
            raise ModelError(
                f"tensor {name}, shape {list(shape)}: {describe_damage(path, error)}"
            ) from None
        found = tuple(stored.shape)
        if found != shape:
            raise ModelError(
                f"{path}: tensor {name} has shape {list(found)}, the config asks for {list(shape)}"
            )
        # The file is mapped: what is not in the slice is not read.
        tensor: torch.Tensor = stored[part]
        with self._lock:
            self.bytes_read += tensor.nbytes
        if self._device.type == "cpu":
            return tensor
        # Pages of a mapped file reach the device through memory that it can read by itself.
        staging = torch.empty(tensor.shape, dtype=tensor.dtype, pin_memory=True)
        return staging.copy_(tensor).to(self._device, non_blocking=True)


class DummySource:
    """Random weights, the same for every split: they follow from seed, name and kind of device."""

    def __init__(self, seed: int, device: torch.device = _HOST) -> None:
        self.bytes_read = 0
        self._seed = seed
        self._device = device

    def get(self, name: str, shape: tuple[int, ...], part: Part = ()) -> torch.Tensor:
        if name.endswith("norm.weight"):
            whole = torch.ones(shape, device=self._device)
        else:
            digest = hashlib.sha256(f"{self._seed}:{name}".encode()).digest()
            generator = torch.Generator(self._device)
            generator.manual_seed(int.from_bytes(digest[:7], "little"))
            whole = torch.randn(shape, generator=generator, device=self._device)
            whole *= shape[-1] ** -0.5
        return whole[part].clone() if part else whole


def _every(part: Part, dimensions: int) -> Part:
    return (*part, *(slice(None) for _ in range(dimensions - len(part))))
