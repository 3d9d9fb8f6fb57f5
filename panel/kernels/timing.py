"""How long launches take on a GPU, without the gaps between launches from Python."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from statistics import median

import torch


def microseconds(calls: Sequence[Callable[[], object]], replays: int = 5) -> float:
    """Return the time of one of `calls`, in microseconds, as one graph replays them in turn.

    Give calls on different inputs, together larger than the L2 cache. They are run once before, so
    that compiling stays out; the result is the median over `replays`.
    """
    for call in calls:
        call()
    torch.cuda.synchronize()
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph, capture_error_mode="thread_local"):
        for call in calls:
            call()
    graph.replay()
    times: list[float] = []
    for _ in range(replays):
        start, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))
        start.record()
        graph.replay()
        end.record()
        end.synchronize()
        times.append(start.elapsed_time(end) * 1000 / len(calls))
    return median(times)
