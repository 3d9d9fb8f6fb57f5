"""RMSNorm in one pass.

One program a row: the row is read once, its length is summed in float32, the result written once.
Bytes moved: two a bf16 element in, two out, so that a decode step is bound by the launch. Source:
Zhang and Sennrich, "Root Mean Square Layer Normalization" (2019).
"""

from __future__ import annotations

import torch
import triton
import triton.language as tl

Norm = tuple[torch.Tensor, torch.Tensor]
"""Gain [n] times sqrt(n), and floor, a scalar: what `rms_norm` takes."""


def rms_norm_reference(x: torch.Tensor, gain: torch.Tensor, floor: torch.Tensor) -> torch.Tensor:
    """Return `x / sqrt(|x|² + floor²) * gain` over the last dimension, computed in float32.

    Shapes: x [..., n]; gain [n], the checkpoint's times sqrt(n); floor a scalar, sqrt(n epsilon).
    """
    wide = x.float()
    length = torch.hypot(wide.norm(dim=-1, keepdim=True), floor.float())
    return (wide / length * gain.float()).to(x.dtype)


def rms_norm(
    x: torch.Tensor, gain: torch.Tensor, floor: torch.Tensor, out: torch.Tensor | None = None
) -> torch.Tensor:
    """Return what `rms_norm_reference` does; `out` may be `x`.

    `x` is [rows, n] or [rows, heads, n], the last dimension contiguous, the others strided at will.
    """
    out = torch.empty(x.shape, dtype=x.dtype, device=x.device) if out is None else out
    source, target = (t if t.dim() == 3 else t.unsqueeze(1) for t in (x, out))
    rows, heads, width = source.shape
    block = triton.next_power_of_2(width)
    _rms_norm[(rows, heads)](
        source,
        target,
        gain,
        floor,
        width,
        source.stride(0),
        source.stride(1),
        target.stride(0),
        target.stride(1),
        BLOCK=block,
        num_warps=min(16, max(1, block // 512)),
    )
    return out


@triton.jit  # type: ignore[untyped-decorator]
def _rms_norm(  # type: ignore[no-untyped-def]
    source,
    target,
    gain,
    floor,
    width,
    source_row,
    source_head,
    target_row,
    target_head,
    BLOCK: tl.constexpr,  # noqa: N803
):
    row, head = tl.program_id(0).to(tl.int64), tl.program_id(1).to(tl.int64)
    columns = tl.arange(0, BLOCK)
    inside = columns < width
    at = source + row * source_row + head * source_head
    wide = tl.load(at + columns, mask=inside, other=0.0).to(tl.float32)
    least = tl.load(floor).to(tl.float32)
    scale = tl.rsqrt(tl.sum(wide * wide, axis=0) + least * least)
    result = wide * scale * tl.load(gain + columns, mask=inside, other=0.0).to(tl.float32)
    to = target + row * target_row + head * target_head
    tl.store(to + columns, result.to(target.dtype.element_ty), mask=inside)
