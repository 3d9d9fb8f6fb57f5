"""What a GPU's memory moves at most, as a large copy shows."""

from __future__ import annotations

import torch

from panel.kernels.timing import microseconds


def copy_bandwidth(device: torch.device | str) -> float:
    """Return the bytes per second of copies of 4 GB one after the other, read and written."""
    source = torch.randn(1 << 30, device=device)
    target = torch.empty_like(source)
    return 2 * source.nbytes / microseconds([lambda: target.copy_(source)] * 3) * 1e6
