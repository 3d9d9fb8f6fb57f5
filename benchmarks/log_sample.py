"""A log of eight ranks, the same on every machine: what a long debug run of an engine writes."""

from __future__ import annotations

import random
from collections.abc import Iterator
from pathlib import Path

RANKS = 8
LINES = 3_100_000
_RARE = 40_000
_SEED = 4


def write_sample(path: Path, lines: int = LINES) -> None:
    """Write the file: 500 MB, some rare lines among the many."""
    with path.open("wb") as file:
        for block in _blocks(lines):
            file.write(block)


def _blocks(lines: int) -> Iterator[bytes]:
    chance = random.Random(_SEED)
    pad = " ".join(f"load[{i}]={chance.random():.4f}" for i in range(5))
    made: list[str] = []
    for number in range(lines):
        second = number // 2000
        clock = f"{12 + second // 3600 % 12:02d}:{second // 60 % 60:02d}:{second % 60:02d}"
        rank = number % RANKS
        head = f"[2026-01-31 {clock}.{number % 1000:03d} TP{rank} EP{rank} serving]"
        made.append(f"{head} {_text(number, chance, pad)}\n")
        if len(made) == 20_000:
            yield "".join(made).encode()
            made.clear()
    yield "".join(made).encode()


def _text(number: int, chance: random.Random, pad: str) -> str:
    if number % _RARE == 17:
        return f"ERROR OutOfMemoryError: tried to allocate {chance.randrange(1, 999)} MiB"
    if number % _RARE == 4017:
        return f"WARNING NCCL WARN timeout after {chance.randrange(60_000)} ms, peer {number % 8}"
    if number % 97 == 5:
        return f"INFO Prefill batch, #new-seq {number % 9}, #new-token {number % 4096}"
    running = number % 32
    return f"DEBUG Decode batch, #running {running}, #token {number * 7 % 100_000}, {pad}"
