"""Time that a cycle's parts take on the device, read once it has passed them."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator
from contextlib import contextmanager

import torch


class Clock:
    """Marks in the stream of a GPU, around parts; on a CPU it tells nothing."""

    def __init__(self, device: torch.device) -> None:
        self._on_gpu = device.type == "cuda"
        self._spans: deque[tuple[str, torch.cuda.Event, torch.cuda.Event]] = deque()
        self._free: list[tuple[torch.cuda.Event, torch.cuda.Event]] = []

    @contextmanager
    def on(self, part: str) -> Iterator[None]:
        """Count the device's time for what is launched inside towards `part`."""
        if not self._on_gpu:
            yield
            return
        begin, end = self._free.pop() if self._free else (_mark(), _mark())
        begin.record()
        yield
        end.record()
        self._spans.append((part, begin, end))

    def read(self) -> Iterator[tuple[str, float]]:
        """Yield the parts that have passed since the last reading, and the seconds of each."""
        while self._spans and self._spans[0][2].query():
            part, begin, end = self._spans.popleft()
            yield part, begin.elapsed_time(end) / 1e3
            self._free.append((begin, end))


def _mark() -> torch.cuda.Event:
    return torch.cuda.Event(enable_timing=True)
