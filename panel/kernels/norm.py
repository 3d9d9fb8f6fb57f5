"""RMSNorm, alone and fused with the addition of the residual.

One program a row: the row is read once, normalised in float32, written once. Bytes moved: 2 per
element and tensor in bf16, so a decode step is bound by launch latency and a prefill by bandwidth.
Source: Zhang and Sennrich, "Root Mean Square Layer Normalization" (2019); the epsilon and the order
of casts are those of the DeepSeek checkpoints' reference code (weight times the cast-back value).
"""

from __future__ import annotations

import torch
import triton
import triton.language as tl


def rms_norm_reference(x: torch.Tensor, weight: torch.Tensor, eps: float) -> torch.Tensor:
    """Return `x` (…, hidden) divided by its root mean square, times `weight` (hidden)."""
    wide = x.float()
    scaled = wide * torch.rsqrt(wide.square().mean(-1, keepdim=True) + eps)
    return weight * scaled.to(x.dtype)


def rms_norm(x: torch.Tensor, weight: torch.Tensor, eps: float) -> torch.Tensor:
    """Return what `rms_norm_reference` does, in one pass. `x` is contiguous (rows, hidden)."""
    out = torch.empty_like(x)
    _launch(x, None, weight, out, eps)
    return out


def add_rms_norm(
    x: torch.Tensor, residual: torch.Tensor, weight: torch.Tensor, eps: float
) -> torch.Tensor:
    """Add `x` to `residual` in place and return the norm of the sum; all (rows, hidden)."""
    out = torch.empty_like(x)
    _launch(x, residual, weight, out, eps)
    return out


def _launch(
    x: torch.Tensor,
    residual: torch.Tensor | None,
    weight: torch.Tensor,
    out: torch.Tensor,
    eps: float,
) -> None:
    rows, hidden = x.shape
    block = triton.next_power_of_2(hidden)
    _kernel[(rows,)](
        x,
        x if residual is None else residual,
        weight,
        out,
        hidden,
        eps,
        HAS_RESIDUAL=residual is not None,
        BLOCK=block,
        num_warps=min(16, max(1, block // 512)),
    )


@triton.jit  # type: ignore[untyped-decorator]
def _kernel(x, residual, weight, out, hidden, eps, HAS_RESIDUAL: tl.constexpr, BLOCK: tl.constexpr):  # type: ignore[no-untyped-def]  # noqa: N803
    row = tl.program_id(0).to(tl.int64) * hidden
    columns = tl.arange(0, BLOCK)
    inside = columns < hidden
    values = tl.load(x + row + columns, mask=inside, other=0.0)
    if HAS_RESIDUAL:
        # Rounded to the residual's type before the norm: later layers see the same number.
        values = values + tl.load(residual + row + columns, mask=inside, other=0.0)
        tl.store(residual + row + columns, values, mask=inside)
    wide = values.to(tl.float32)
    scale = tl.rsqrt(tl.sum(wide * wide, axis=0) / hidden + eps)
    scaled = (wide * scale).to(values.dtype)
    gain = tl.load(weight + columns, mask=inside, other=0.0)
    tl.store(out + row + columns, gain * scaled, mask=inside)
