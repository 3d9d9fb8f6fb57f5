"""Where tensors come from: slices of safetensors files, or seeded random numbers."""

from __future__ import annotations

import hashlib
import json
from pathlib import Path
from typing import Protocol

import torch
from safetensors import SafetensorError, safe_open

from panel.server.config import ModelError

Part = tuple[slice, ...]
"""What of a tensor is wanted: a slice for each of its leading dimensions."""


class WeightSource(Protocol):
    """Gives parts of named tensors."""

    def get(self, name: str, shape: tuple[int, ...], part: Part = ()) -> torch.Tensor:
        """Return `part` of the tensor `name`, whose whole shape is `shape`, in float32."""
        ...


class SafetensorsSource:
    """A Hugging Face checkpoint folder; only the asked slices are read."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._file_of = _index(folder)
        self._open: dict[Path, safe_open] = {}

    def get(self, name: str, shape: tuple[int, ...], part: Part = ()) -> torch.Tensor:
        path = self._file_of.get(name)
        if path is None:
            raise ModelError(f"{self._folder}: no file holds tensor {name}, shape {list(shape)}")
        try:
            if path not in self._open:
                self._open[path] = safe_open(path, framework="pt")
            stored = self._open[path].get_slice(name)  # type: ignore[no-untyped-call]
            found = tuple(stored.get_shape())
            if found != shape:
                raise ModelError(
                    f"{path}: tensor {name} has shape {list(found)}, "
                    f"the config asks for {list(shape)}"
                )
            tensor: torch.Tensor = stored[part or slice(None)]
        except (SafetensorError, OSError) as error:
            raise ModelError(
                f"{path}: tensor {name}, shape {list(shape)}: {error}; copy the file anew"
            ) from None
        if tensor.dtype not in (torch.float32, torch.bfloat16, torch.float16):
            raise ModelError(f"{path}: tensor {name} is {tensor.dtype}, which is not served yet")
        return tensor.float()


class DummySource:
    """Random weights; a tensor depends on seed and name alone, so every split sees the same."""

    def __init__(self, seed: int) -> None:
        self._seed = seed

    def get(self, name: str, shape: tuple[int, ...], part: Part = ()) -> torch.Tensor:
        if name.endswith("norm.weight"):
            whole = torch.ones(shape)
        else:
            digest = hashlib.sha256(f"{self._seed}:{name}".encode()).digest()
            generator = torch.Generator().manual_seed(int.from_bytes(digest[:7], "little"))
            whole = torch.randn(shape, generator=generator) * shape[-1] ** -0.5
        return whole[part] if part else whole


def _index(folder: Path) -> dict[str, Path]:
    """Return the file of each tensor of a checkpoint folder."""
    index = folder / "model.safetensors.index.json"
    if index.exists():
        try:
            names = json.loads(index.read_text())["weight_map"]
        except (OSError, ValueError, KeyError, TypeError) as error:
            raise ModelError(f"{index}: cannot be read: {error!r}") from None
        return {name: folder / file for name, file in names.items()}
    file_of: dict[str, Path] = {}
    for path in sorted(folder.glob("*.safetensors")):
        try:
            with safe_open(path, framework="pt") as file:
                file_of.update(dict.fromkeys(file.keys(), path))
        except (SafetensorError, OSError) as error:
            raise ModelError(f"{path}: is no whole safetensors file: {error}") from None
    if not file_of:
        raise ModelError(f"{folder}: no *.safetensors file there")
    return file_of
