"""The parts of the weight keeper that need neither ranks nor a GPU."""

from __future__ import annotations

import ctypes
import os
import socket
from pathlib import Path
from typing import Any

import pytest
import torch

from panel.server.kept.driver import HANDLE_BYTES, Driver
from panel.server.kept.key import stand
from panel.server.kept.memory import DeviceMemory, HostMemory
from panel.server.kept.shelf import BLOCK, HostRegion, Shelf
from panel.server.kept.wire import Frame, receive, send
from tests.server.keeping import keeping

CPU = torch.device("cpu")


def shelf(size: int = 2 * BLOCK) -> Shelf:
    memory = HostMemory(size)
    assert memory.descriptor is not None
    return Shelf(HostRegion(memory.descriptor, size), size, CPU)


def test_frames_carry_header_body_and_descriptor() -> None:
    near, far = socket.socketpair()
    with near, far:
        sent = HostMemory(BLOCK)
        body = os.urandom(3000)
        send(near, Frame({"seal": -(2**62)}, body, sent.descriptor))
        send(near, Frame({"more": "ü"}))
        got = receive(far)
        assert got is not None
        assert got.descriptor is not None
        assert (got.header, got.body) == ({"seal": -(2**62)}, body)
        assert os.fstat(got.descriptor).st_size == BLOCK
        os.close(got.descriptor)
        sent.free()
        assert receive(far) == Frame({"more": "ü"})
        near.close()
        assert receive(far) is None


def test_a_shelf_keeps_order_type_and_place_of_what_is_laid() -> None:
    place = shelf()
    wide = torch.randn(6, 10)
    laid = place.lay(wide.t(), torch.bfloat16)
    assert torch.equal(laid, wide.t().to(torch.bfloat16))
    assert laid.stride() == wide.t().stride()
    second = place.lay(torch.arange(5), torch.complex64)
    assert second.data_ptr() % 512 == laid.data_ptr() % 512 == 0
    assert second.untyped_storage().nbytes() == 40
    assert place.lay(torch.empty(0, 4), torch.float32).shape == (0, 4)
    with pytest.raises(MemoryError, match="do not hold the weights"):
        place.lay(torch.empty(2 * BLOCK), torch.float32)


@pytest.mark.parametrize("harm", ["a changed word", "two blocks changed places"])
def test_a_seal_is_broken_by(harm: str) -> None:
    place = shelf()
    place.lay(torch.randn(BLOCK // 4 + 100), torch.float32)
    before = place.seal()
    assert place.seal() == before
    words = place.region.bytes(0, place.size)
    if harm == "a changed word":
        words[BLOCK + 3] ^= 1
    else:
        words.copy_(torch.cat((words[BLOCK:], words[:BLOCK])))
    assert place.seal() != before


def test_a_file_stands_otherwise_once_it_was_written(tmp_path: Path) -> None:
    file = tmp_path / "model.safetensors"
    file.write_bytes(b"one")
    before = stand([file])
    file.write_bytes(b"other")
    assert stand([file]) != before


def _fine(*_: Any) -> int:
    return 0


_DOES = {
    "cuMemAlloc_v2": "_allocate",
    "cuMemFree_v2": "_free",
    "cuIpcGetMemHandle": "_lend",
    "cuIpcOpenMemHandle_v2": "_borrow",
    "cuGetErrorName": "_name",
}


class Library:
    """Stands in for the driver: one GPU of 1000 bytes whose context belongs to nobody else."""

    def __init__(self) -> None:
        self.calls: list[str] = []
        self.memory: dict[int, int] = {}

    def __getattr__(self, name: str) -> Any:
        if not name.startswith("cu"):
            raise AttributeError(name)

        def call(*arguments: Any) -> int:
            self.calls.append(name)
            return int(getattr(self, _DOES.get(name, ""), _fine)(*arguments))

        return call

    def _allocate(self, pointer: Any, size: ctypes.c_size_t) -> int:
        if size.value > 1000:
            return 2
        pointer._obj.value = 4096
        self.memory[4096] = size.value
        return 0

    def _free(self, pointer: ctypes.c_uint64) -> int:
        del self.memory[pointer.value]
        return 0

    def _lend(self, handle: Any, pointer: ctypes.c_uint64) -> int:
        handle._obj.reserved = f"is at {pointer.value}".encode()
        return 0

    def _borrow(self, pointer: Any, handle: Any, flags: ctypes.c_uint) -> int:
        assert flags.value == 1
        pointer._obj.value = int(handle.reserved.removeprefix(b"is at ")) + 1
        return 0

    def _name(self, code: int, text: Any) -> int:
        text._obj.value = b"CUDA_ERROR_OUT_OF_MEMORY"
        return 0


def test_memory_of_a_gpu_is_lent_and_given_back() -> None:
    library = Library()
    memory = DeviceMemory(Driver(library), 3, 800)
    assert len(memory.handle) == HANDLE_BYTES
    assert Driver(library).borrow(memory.handle) == 4097
    assert library.calls.index("cuCtxSetCurrent") < library.calls.index("cuMemAlloc_v2")
    memory.free()
    assert library.memory == {}
    with pytest.raises(OSError, match="cuMemAlloc_v2: CUDA_ERROR_OUT_OF_MEMORY"):
        DeviceMemory(Driver(library), 3, 2000)


def test_memory_that_cannot_be_had_is_refused_with_the_reason(tmp_path: Path) -> None:
    with keeping(tmp_path) as keeper, socket.socket(socket.AF_UNIX) as rank:
        rank.settimeout(30)
        rank.connect(str(keeper.path))
        send(rank, Frame({"key": "k", "rank": 0, "gpu": 9999, "size": BLOCK}))
        answer = receive(rank)
        assert answer is not None
        assert f"{BLOCK} bytes cannot be had" in answer.header["refused"]
        keeper.wait(bytes=0, ranks=0, users=0)
        assert keeper.end() == 0
