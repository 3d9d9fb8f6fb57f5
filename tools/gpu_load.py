"""A minute of known work for the GPUs of a host: python tools/gpu_load.py [SECONDS OF EACH KIND]

Prints a JSON line for each kind of work with the bytes that it moved, to compare counters with.
"""

from __future__ import annotations

import json
import sys
import time
from collections.abc import Callable

import torch

GIB = 1 << 30


def spend(kind: str, seconds: float, step: Callable[[], int]) -> None:
    """Repeat `step`, which returns the bytes that it moved, for so long."""
    begun, moved = time.time(), 0
    while time.time() < begun + seconds:
        moved += step()
    for gpu in range(torch.cuda.device_count()):
        torch.cuda.synchronize(gpu)
    taken = time.time() - begun
    print(json.dumps({"kind": kind, "t": begun, "s": round(taken, 3), "bytes": moved}), flush=True)


def main(seconds: float) -> None:
    """Matrix products on every GPU, copies from the host to GPU 0, copies to its neighbour."""
    gpus = range(torch.cuda.device_count())
    squares = [torch.randn(8192, 8192, device=f"cuda:{gpu}", dtype=torch.bfloat16) for gpu in gpus]
    here = torch.empty(GIB, dtype=torch.uint8).pin_memory()
    there = [torch.empty(GIB, dtype=torch.uint8, device=f"cuda:{gpu}") for gpu in gpus]

    def products() -> int:
        for square in squares:
            for _ in range(20):
                torch.matmul(square, square)
        torch.cuda.synchronize(0)
        return 0

    def upload() -> int:
        there[0].copy_(here, non_blocking=True)
        torch.cuda.synchronize(0)
        return GIB

    def across() -> int:
        there[1].copy_(there[0], non_blocking=True)
        torch.cuda.synchronize(0)
        return GIB

    spend("products", seconds, products)
    spend("upload", seconds, upload)
    if len(gpus) > 1:
        spend("across", seconds, across)


if __name__ == "__main__":
    main(float(sys.argv[1]) if len(sys.argv) > 1 else 6.0)
