"""The norm and the router's logits of few rows, in one launch.

A program takes one row and some experts, and multiplies in float32 what the norm gives before it is
rounded. Bytes moved: the router's weights once a row, from the L2 cache.
"""

from __future__ import annotations

import torch
import triton
import triton.language as tl

from panel.kernels.norm import rms_norm_reference

EXPERTS = 16
"""Experts of a program: one sector of memory in bfloat16."""


def expert_logits_reference(
    x: torch.Tensor, gain: torch.Tensor, floor: torch.Tensor, route: torch.Tensor
) -> tuple[torch.Tensor, torch.Tensor]:
    """Return what `expert_logits` writes, in float32."""
    normed = rms_norm_reference(x.float(), gain, floor)
    return normed, normed @ route.float()


def expert_logits(
    x: torch.Tensor,
    gain: torch.Tensor,
    floor: torch.Tensor,
    route: torch.Tensor,
    normed: torch.Tensor,
    logits: torch.Tensor,
) -> None:
    """Write `normed` [rows, hidden] and `logits` float32 [rows, experts].

    Shapes: x [rows, hidden]; gain [hidden] and floor as in `rms_norm`; route [hidden, experts].
    """
    rows, hidden = x.shape
    experts = route.shape[1]
    _expert_logits[(triton.cdiv(experts, EXPERTS), rows)](
        x,
        gain,
        floor,
        route,
        normed,
        logits,
        hidden,
        experts,
        x.stride(0),
        BK=min(2048, int(triton.next_power_of_2(hidden))),
        BN=EXPERTS,
        num_warps=8,
    )


@triton.jit  # type: ignore[untyped-decorator]
def _expert_logits(  # type: ignore[no-untyped-def]
    x,
    gain,
    floor,
    route,
    normed,
    logits,
    hidden,
    experts,
    x_stride,
    BK: tl.constexpr,  # noqa: N803
    BN: tl.constexpr,  # noqa: N803
):
    row = tl.program_id(1).to(tl.int64)
    expert = tl.program_id(0) * BN + tl.arange(0, BN)
    exists = expert < experts
    result = tl.zeros([BN], dtype=tl.float32)
    squares = 0.0
    for start in range(0, hidden, BK):
        k = start + tl.arange(0, BK)
        within = k < hidden
        wide = tl.load(x + row * x_stride + k, mask=within, other=0.0).to(tl.float32)
        factor = tl.load(gain + k, mask=within, other=0.0).to(tl.float32)
        weights = tl.load(
            route + k[:, None] * experts + expert[None, :],
            mask=within[:, None] & exists[None, :],
            other=0.0,
        )
        squares += tl.sum(wide * wide, axis=0)
        result += tl.sum((wide * factor)[:, None] * weights.to(tl.float32), axis=0)
    least = tl.load(floor).to(tl.float32)
    scale = tl.rsqrt(squares + least * least)
    tl.store(logits + row * experts + expert, result * scale, mask=exists)
    if tl.program_id(0) == 0:
        for start in range(0, hidden, BK):
            k = start + tl.arange(0, BK)
            within = k < hidden
            wide = tl.load(x + row * x_stride + k, mask=within, other=0.0).to(tl.float32)
            factor = tl.load(gain + k, mask=within, other=0.0).to(tl.float32)
            tl.store(
                normed + row * hidden + k,
                (wide * scale * factor).to(normed.dtype.element_ty),
                mask=within,
            )
