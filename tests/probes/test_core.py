"""Cores of CUDA kernels: where they may be had, how one is taken, what cuda-gdb says of it."""

from __future__ import annotations

import os
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest

from panel.probes.hang import core

GDB = """#!/bin/sh
cat <<'END'
  Kernel Parent Dev Grid Status   SMs Mask GridDim  BlockDim Invocation
*      0      -   0    7 Active 0x00ffffff (240,1,1) (128,1,1) spin<float>(int*)
       1      -   0    8 Active 0x00ffffff (1,1,1) (512,1,1) ncclDevKernel_AllReduce(args)
END
"""


@pytest.fixture
def env(tmp_path: Path) -> dict[str, str]:
    return {
        core.SWITCH: "1",
        "CUDA_COREDUMP_PIPE": str(tmp_path / "pipe.%p"),
        "CUDA_COREDUMP_FILE": str(tmp_path / "core_%t_%p.nvcudmp"),
    }


@pytest.fixture
def driver(tmp_path: Path) -> Iterator[list[bytes]]:
    """Stands for CUDA in process 7: reads its pipe and writes a core in two pieces."""
    os.mkfifo(tmp_path / "pipe.7")
    heard: list[bytes] = []
    opened = os.open(tmp_path / "pipe.7", os.O_RDWR)

    def serve() -> None:
        heard.append(os.read(opened, 64))
        if heard[0]:
            (tmp_path / "core_1796_7.nvcudmp").write_bytes(b"core")

    thread = threading.Thread(target=serve)
    thread.start()
    yield heard
    os.write(opened, b"end")
    thread.join()
    os.close(opened)


def test_it_says_why_none_can_be_taken(env: dict[str, str]) -> None:
    assert "no CUDA_ENABLE_USER_TRIGGERED_COREDUMP=1" in core.trouble({}, {0: 7})
    assert core.trouble(env, {0: 7}) == "CUDA has made no pipe pipe.7"
    os.mkfifo(core.pipe_of(env, 7))
    assert core.trouble(env, {0: 6, 1: 7}) == ""
    with pytest.raises(OSError, match="No such device"):
        core.take(env, 7, 1.0)


def test_names_without_a_folder_are_in_that_of_the_process() -> None:
    assert core.pipe_of({}, os.getpid()).parent == Path.cwd()
    assert core.pipe_of({}, os.getpid()).name.endswith(f".{os.getpid()}")


def test_a_core_is_whole_once_it_has_stopped_growing(
    env: dict[str, str], driver: list[bytes], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(core, "_QUIET_S", 0.1)
    monkeypatch.setattr(core, "_POLL_S", 0.02)
    file, whole = core.take(env, 7, 10.0)
    assert driver == [b"moepanel\n"]
    assert (file and file.read_bytes(), whole) == (b"core", True)


def test_a_rank_that_writes_nothing_is_not_waited_for(
    env: dict[str, str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(core, "_POLL_S", 0.02)
    os.mkfifo(tmp_path / "pipe.7")
    reader = os.open(tmp_path / "pipe.7", os.O_RDWR)
    (tmp_path / "core_1_7.nvcudmp").write_bytes(b"of an earlier time")
    assert core.take(env, 7, 0.1) == (None, False)
    os.close(reader)


def test_cuda_gdb_names_the_kernels(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    assert "no cuda-gdb here" in core.kernels(Path("/x/core.nvcudmp"))
    (tmp_path / "cuda-gdb").write_text(GDB.replace("cat", "/bin/cat"))
    (tmp_path / "cuda-gdb").chmod(0o755)
    named = core.kernels(Path("/x/core.nvcudmp"))
    assert named == "spin<float>(int*); ncclDevKernel_AllReduce(args)"
