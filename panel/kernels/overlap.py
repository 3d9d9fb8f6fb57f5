"""A kernel may start while the one before it ends (programmatic dependent launch).

A kernel launched so brings its weights, which nobody writes, toward the chip and then waits for
the kernels before it. That hides most of a launch, 1 to 3 us, and keeps memory busy in between.
Every program of such a kernel must call `await_inputs` before it reads or writes anything that
another kernel writes or reads; then the order of a stream is as if nothing overlapped. Source:
CUDA C++ Programming Guide, "Programmatic Dependent Launch and Synchronization".
"""

from __future__ import annotations

from functools import cache

import torch
import triton
import triton.language as tl

LINE_BYTES = 128
"""A line of the L2 cache."""


def launch_options(device: torch.device, *, overlap: bool = True) -> dict[str, bool]:
    """Return keyword arguments for a launch: `OVERLAP`, and what makes the launch overlap."""
    if overlap and _allowed and _capable(device):
        return {"OVERLAP": True, "launch_pdl": True}
    return {"OVERLAP": False}


def allow_overlap(allowed: bool) -> None:
    """Say whether launches from now on may overlap; at first they may."""
    global _allowed
    _allowed = allowed


_allowed = True


@cache
def _capable(device: torch.device) -> bool:
    return (
        device.type == "cuda"
        and torch.version.cuda is not None
        and torch.cuda.get_device_capability(device) >= (9, 0)
    )


@triton.jit  # type: ignore[untyped-decorator]
def await_inputs(OVERLAP: tl.constexpr):  # type: ignore[no-untyped-def]  # noqa: N803
    """Let the next kernel start, and wait until the kernels before have ended."""
    if OVERLAP:
        tl.extra.cuda.gdc_launch_dependents()
        tl.extra.cuda.gdc_wait()


@triton.jit  # type: ignore[untyped-decorator]
def prefetch(pointers, OVERLAP: tl.constexpr):  # type: ignore[no-untyped-def]  # noqa: N803
    """Bring the line around each pointer into the L2 cache."""
    if OVERLAP:
        tl.inline_asm_elementwise(
            "prefetch.global.L2 [$1]; mov.b32 $0, 0;",
            "=r,l",
            [pointers],
            dtype=tl.int32,
            is_pure=False,
            pack=1,
        )
