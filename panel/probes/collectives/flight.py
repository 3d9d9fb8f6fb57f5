"""torch's flight recorder: the last collectives of each rank over NCCL, dumped on demand.

It knows nothing of collectives outside torch.distributed, nor of those replayed from a graph.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
from collections.abc import Iterable
from pathlib import Path

import msgspec

BUFFER = 2000
"""Collectives kept by each rank."""
_STEP_S = 0.05


class Entered(msgspec.Struct, frozen=True, kw_only=True):
    """The newest collective of a rank in one process group."""

    rank: int
    group: str
    sequence: int
    operation: str
    sizes: str
    state: str
    """scheduled, started or completed."""
    frames: tuple[str, ...] = ()


def environment(folder: Path, torch: tuple[int, int]) -> dict[str, str]:
    """Return what a launch over NCCL needs for dumps into `folder`, on demand and on a timeout.

    `torch` is its version: 2.9 renamed two of the variables, and warns of the old names.
    """
    old = torch < (2, 9)
    size = "TORCH_NCCL_TRACE_BUFFER_SIZE" if old else "TORCH_FR_BUFFER_SIZE"
    file = "TORCH_NCCL_DEBUG_INFO_TEMP_FILE" if old else "TORCH_FR_DUMP_TEMP_FILE"
    return {
        size: str(BUFFER),
        file: str(folder / "flight-"),
        "TORCH_NCCL_DEBUG_INFO_PIPE_FILE": str(folder / "flight-pipe-"),
        "TORCH_NCCL_DUMP_ON_TIMEOUT": "1",
    }


def dump(folder: Path, ranks: Iterable[int], seconds: float) -> dict[int, str]:
    """Ask the ranks for their dumps and wait for them; return why there is none, by rank."""
    begun = time.time()
    missing: dict[int, str] = {}
    waiting = set()
    for rank in ranks:
        try:
            # Non-blocking: where nobody reads the pipe there is no recorder.
            pipe = os.open(folder / f"flight-pipe-{rank}.pipe", os.O_WRONLY | os.O_NONBLOCK)
        except OSError:
            missing[rank] = "has no flight recorder"
            continue
        with os.fdopen(pipe, "wb") as file:
            file.write(b"1\n")
        waiting.add(rank)
    deadline = time.monotonic() + seconds
    while waiting and time.monotonic() < deadline:
        time.sleep(_STEP_S)
        waiting -= {rank for rank in waiting if _is_newer(dump_file(folder, rank), begun)}
    return missing | dict.fromkeys(waiting, "did not dump in time")


def dump_file(folder: Path, rank: int) -> Path:
    """Return where a rank's dump lies."""
    return folder / f"flight-{rank}"


def analyse(files: dict[int, Path], seconds: float = 20) -> tuple[Entered, ...]:
    """Return the newest collective of each rank and group, by a process that reads the dumps.

    Dumps are pickles: whatever one holds, it stays in that process. Raises `ValueError`.
    """
    command = [sys.executable, "-m", "panel.probes.collectives.flight_reader"]
    words = json.dumps({rank: str(path) for rank, path in files.items()})
    try:
        done = subprocess.run([*command, words], capture_output=True, timeout=seconds, check=False)
        return msgspec.json.decode(done.stdout, type=tuple[Entered, ...])
    except subprocess.TimeoutExpired:
        raise ValueError(f"the dumps could not be read in {seconds:g} s") from None
    except msgspec.DecodeError:
        last = done.stderr.decode(errors="replace").strip().splitlines()[-1:]
        raise ValueError(f"the dumps could not be read: {''.join(last)}") from None


def _is_newer(path: Path, begun: float) -> bool:
    try:
        found = path.stat()
    except OSError:
        return False
    return found.st_size > 0 and found.st_mtime >= begun - 1
