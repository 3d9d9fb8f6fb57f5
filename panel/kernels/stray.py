"""A write far outside of any memory, for drills: the error that a wrong index gives."""

from __future__ import annotations

import torch
import triton
import triton.language as tl

_FAR = 1 << 45
"""Elements beyond the tensor: no allocation reaches there."""


def write_astray(device: torch.device) -> None:
    """Write where nothing is mapped, and wait: raises what CUDA says of it."""
    _kernel[(1,)](torch.zeros(1, device=device), _FAR)
    torch.cuda.synchronize(device)


@triton.jit
def _kernel(target, far):  # type: ignore[no-untyped-def]
    tl.store(target + far, 1.0)
