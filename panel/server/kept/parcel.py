"""A model as bytes that say where its tensors lie on a shelf, and back."""

from __future__ import annotations

import io
import pickle
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import torch

from panel.server.exchange import Exchange
from panel.server.kept.shelf import Shelf
from panel.server.model import Model
from panel.server.placement import Placement


@dataclass(frozen=True, slots=True)
class Fresh:
    """What of a model belongs to a launch and is made anew for each."""

    placements: Mapping[int, Placement]
    """By layer."""
    exchange: Exchange | None


def pack(model: Model, shelf: Shelf, fresh: Fresh) -> bytes:
    """Return the parcel of a model; tensors that do not lie on the shelf are in it by value."""
    file = io.BytesIO()
    _Packer(file, shelf, fresh).dump(model)
    return file.getvalue()


def unpack(parcel: bytes, shelf: Shelf, fresh: Fresh) -> Model:
    """Return the model of a parcel."""
    model = _Unpacker(io.BytesIO(parcel), shelf, fresh).load()
    assert isinstance(model, Model)
    return model


class _Packer(pickle.Pickler):
    def __init__(self, file: io.BytesIO, shelf: Shelf, fresh: Fresh) -> None:
        super().__init__(file, protocol=5)
        self._begin = shelf.region.pointer
        self._end = self._begin + shelf.size
        self._layers = {id(placement): n for n, placement in fresh.placements.items()}
        self._exchange = fresh.exchange

    def persistent_id(self, value: Any) -> Any:
        if isinstance(value, torch.Tensor):
            return self._tensor(value)
        if isinstance(value, Placement):
            return "placement", self._layers[id(value)]
        if value is not None and value is self._exchange:
            return ("exchange",)
        return None

    def _tensor(self, tensor: torch.Tensor) -> tuple[Any, ...]:
        shape, storage = tuple(tensor.shape), tensor.untyped_storage()
        if not self._begin <= storage.data_ptr() < self._end:
            flat = tensor.contiguous().view(-1).view(torch.uint8).cpu()
            return "value", tensor.dtype, shape, flat.numpy().tobytes()
        place = (storage.data_ptr() - self._begin, storage.nbytes())
        return "kept", tensor.dtype, shape, tensor.stride(), tensor.storage_offset(), place


class _Unpacker(pickle.Unpickler):
    def __init__(self, file: io.BytesIO, shelf: Shelf, fresh: Fresh) -> None:
        super().__init__(file)
        self._shelf = shelf
        self._fresh = fresh
        self._storages: dict[tuple[int, int], torch.Tensor] = {}

    def persistent_load(self, pid: Any) -> Any:
        match pid:
            case "kept", dtype, shape, stride, offset, place:
                if place not in self._storages:
                    self._storages[place] = self._shelf.region.bytes(*place)
                return self._storages[place].view(dtype).as_strided(shape, stride, offset)
            case "value", dtype, shape, data:
                flat = torch.frombuffer(bytearray(data), dtype=torch.uint8) if data else _NOTHING
                return flat.view(dtype).view(shape).to(self._shelf.device)
            case "placement", layer:
                return self._fresh.placements[layer]
            case ("exchange",):
                return self._fresh.exchange
        raise pickle.UnpicklingError(f"unknown part {pid!r}")


_NOTHING = torch.empty(0, dtype=torch.uint8)
