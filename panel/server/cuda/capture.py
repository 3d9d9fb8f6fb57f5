"""Launches recorded once, to be replayed."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeVar

import torch

T = TypeVar("T")


def capture(run: Callable[[], T], pool: Any) -> tuple[torch.cuda.CUDAGraph, T]:
    """Return a graph of what `run` launches, and what `run` returned.

    `run` must have run before: kernels are compiled and first buffers made outside of a capture.
    Graphs that are given the `pool` of another share its memory.
    """
    torch.cuda.synchronize()
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph, pool=pool, capture_error_mode="thread_local"):
        result = run()
    return graph, result
