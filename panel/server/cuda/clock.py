"""Time that a cycle's parts take on the device, read when the next one begins."""

from __future__ import annotations

import torch


class Clock:
    """Three marks in the stream of a GPU; on a CPU it tells nothing."""

    def __init__(self, device: torch.device) -> None:
        on_gpu = device.type == "cuda"
        self._marks = [torch.cuda.Event(enable_timing=True) for _ in range(3 if on_gpu else 0)]
        self._passed = 0

    def mark(self) -> None:
        """Set the next mark: before the drafts, after them, after the verification."""
        if self._passed < len(self._marks):
            self._marks[self._passed].record()
            self._passed += 1

    def read(self) -> dict[str, float]:
        """Return the seconds of each part of the last cycle, and start over.

        Nothing where a cycle has not passed all marks, or is under way still.
        """
        passed, self._passed = self._passed, 0
        if passed < 3 or not self._marks[2].query():
            return {}
        first, second, third = self._marks
        parts = {"draft": first.elapsed_time(second), "verify": second.elapsed_time(third)}
        return {part: ms / 1e3 for part, ms in parts.items()}
