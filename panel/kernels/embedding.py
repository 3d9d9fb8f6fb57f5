"""Rows of the embedding for tokens that may be known to the device alone.

Bytes moved: a row of the table in, a row of the hidden state out. It is bound by the launch.
"""

from __future__ import annotations

import torch
import triton
import triton.language as tl


def look_up_reference(
    tokens: torch.Tensor, sampled: torch.Tensor, table: torch.Tensor
) -> torch.Tensor:
    """Return the table's row of each token; `-1 - n` stands for `sampled[n]`.

    Shapes: tokens int64 [rows]; sampled int64 [n]; table [vocabulary, width].
    """
    known = torch.where(tokens < 0, sampled[(-1 - tokens).clamp(min=0)], tokens)
    return table[known]


def look_up(
    tokens: torch.Tensor,
    sampled: torch.Tensor,
    table: torch.Tensor,
    out: torch.Tensor | None = None,
) -> torch.Tensor:
    """Do what `look_up_reference` does; all tensors are contiguous."""
    rows, width = tokens.shape[0], table.shape[1]
    if out is None:
        out = torch.empty((rows, width), dtype=table.dtype, device=table.device)
    block = min(1024, triton.next_power_of_2(width))
    grid = (rows, triton.cdiv(width, block))
    _kernel[grid](tokens, sampled, table, out, width, BLOCK=block, num_warps=4)
    return out


@triton.jit  # type: ignore[untyped-decorator]
def _kernel(  # type: ignore[no-untyped-def]
    tokens,
    sampled,
    table,
    out,
    width,
    BLOCK: tl.constexpr,  # noqa: N803
):
    row = tl.program_id(0).to(tl.int64)
    columns = tl.program_id(1) * BLOCK + tl.arange(0, BLOCK)
    token = tl.load(tokens + row)
    if token < 0:
        token = tl.load(sampled + (-1 - token))
    inside = columns < width
    part = tl.load(table + token * width + columns, mask=inside)
    tl.store(out + row * width + columns, part, mask=inside)
