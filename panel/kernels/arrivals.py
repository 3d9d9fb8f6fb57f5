"""The last of several programs to arrive goes on with what all of them have left.

It saves a launch, and what it does is in a fixed order whichever program it is.
"""

from __future__ import annotations

from functools import cache

import torch
import triton
import triton.language as tl


@cache
def arrival_counts(device: torch.device, stream: str = "main") -> torch.Tensor:
    """Return 8192 counters of programs that have arrived, int32; zero between launches.

    Call it before graphs are captured. `stream` names the launches that follow one another: those
    that may run at once need counters of their own.
    """
    if device.type == "cuda" and torch.cuda.is_current_stream_capturing():
        raise RuntimeError("call arrival_counts(device) before a graph is captured")
    return torch.zeros(8192, dtype=torch.int32, device=device)


@triton.jit
def is_last(counter, programs):  # type: ignore[no-untyped-def]
    """Arrive, with everything stored so far; true for the last of so many programs.

    The last one must read with `.cg` what the others have stored.
    """
    tl.debug_barrier()
    last = tl.atomic_add(counter, 1, sem="acq_rel") == programs - 1
    if last:
        tl.store(counter, 0)
    return last


@triton.jit
def arrive(counter):  # type: ignore[no-untyped-def]
    """Arrive, with everything stored so far."""
    tl.debug_barrier()
    tl.atomic_add(counter, 1, sem="acq_rel")


@triton.jit
def await_others(counter, programs):  # type: ignore[no-untyped-def]
    """Wait until so many programs have arrived, all with lower numbers in the same launch.

    Programs start in the order of their numbers, so those waited for run or have run; they must not
    wait themselves. What they have stored must be read with `.cg`. The counter was 0 before.
    """
    arrived = tl.atomic_add(counter, 0, sem="acquire")
    while arrived < programs:
        arrived = tl.atomic_add(counter, 0, sem="acquire")
    tl.debug_barrier()
