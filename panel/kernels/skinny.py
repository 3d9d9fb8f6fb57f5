"""A product of few rows with a large weight: the weight is read once, at memory speed.

A program owns a block of columns and a part of the depth. Where the depth is in several parts, each
leaves its sums in a workspace, and the last to arrive adds them up in the order of the parts: the
result does not depend on the order of arrival. A norm of `x` costs no launch, since its scale is
one factor a row: `norm(x) @ w` is `(x * gain) @ w * scale`. Bytes moved: the weight's, depth *
columns * 2 in bf16; x and the sums stay in the L2 cache. Source: the split of the depth is that of
Osama et al., "Stream-K" (2023), with a fixed order of the sums.
"""

from __future__ import annotations

import torch
import triton
import triton.language as tl

from panel.kernels.arrivals import arrival_counts, is_last
from panel.kernels.norm import rms_norm_reference
from panel.kernels.overlap import LINE_BYTES, await_inputs, launch_options, prefetch
from panel.kernels.skinny_tiles import Tile, tile_for

Norm = tuple[torch.Tensor, torch.Tensor]
"""Gain [depth] times sqrt(depth), and floor, a scalar: what `rms_norm` takes."""


def skinny_matmul_reference(
    x: torch.Tensor,
    weight: torch.Tensor,
    *,
    norm: Norm | None = None,
    residual: torch.Tensor | None = None,
    bias: torch.Tensor | None = None,
) -> torch.Tensor:
    """Return `norm(x) @ weight + bias + residual` in float32.

    Shapes: x [rows, depth], weight [depth, columns], bias [columns], residual [rows, columns].
    """
    wide = x.float() if norm is None else rms_norm_reference(x.float(), *norm)
    result = wide @ weight.float()
    if bias is not None:
        result += bias.float()
    if residual is not None:
        result += residual.float()
    return result


def skinny_matmul(
    x: torch.Tensor,
    weight: torch.Tensor,
    *,
    norm: Norm | None = None,
    residual: torch.Tensor | None = None,
    bias: torch.Tensor | None = None,
    out: torch.Tensor | None = None,
    arrivals: torch.Tensor | None = None,
    tile: Tile | None = None,
) -> torch.Tensor:
    """Do what `skinny_matmul_reference` does; with `residual` the result goes there, in place.

    One of weight's dimensions is contiguous, as is the last of the others; sums are float32, `out`
    of any float type, by default x's. Meant for up to 64 rows; more are right too, but a library is
    faster. `arrivals`, from `arrival_counts`, is shared by calls that follow one another: a second
    stream needs its own.
    """
    rows, depth = x.shape
    columns = weight.shape[1]
    if residual is not None:
        out = residual
    elif out is None:
        out = torch.empty((rows, columns), dtype=x.dtype, device=x.device)
    tile = tile or tile_for(rows, weight)
    height = 1 if rows == 1 else min(64, max(16, triton.next_power_of_2(rows)))
    wide, tall = triton.cdiv(columns, tile.columns), triton.cdiv(rows, height)
    part = triton.cdiv(triton.cdiv(depth, tile.split), tile.depth) * tile.depth
    split = triton.cdiv(depth, part)
    if arrivals is None:
        arrivals = arrival_counts(x.device)
    if split > 1 and wide * tall > arrivals.shape[0]:
        raise ValueError(f"{wide * tall} blocks of the result and {arrivals.shape[0]} counters")
    sums = squares = out
    if split > 1:
        sums = torch.empty((split, rows, columns), dtype=torch.float32, device=x.device)
        squares = torch.empty((split, wide, rows), dtype=torch.float32, device=x.device)
    gain, floor = (x, x) if norm is None else norm
    _skinny[(wide, split, tall)](
        x,
        weight,
        gain,
        floor,
        out if bias is None else bias,
        out,
        sums,
        squares,
        arrivals,
        rows,
        depth,
        columns,
        part,
        x.stride(0),
        *weight.stride(),
        out.stride(0),
        depth**-0.5,
        ROWS=height,
        COLUMNS=tile.columns,
        DEPTH=tile.depth,
        STAGES=tile.stages,
        LINE=LINE_BYTES // weight.element_size(),
        DEEP=weight.stride(0) == 1,
        SPLIT=split > 1,
        NORM=norm is not None,
        BIAS=bias is not None,
        RESIDUAL=residual is not None,
        num_warps=tile.warps,
        **launch_options(x.device),
    )
    return out


@triton.jit  # type: ignore[untyped-decorator]
def _skinny(  # type: ignore[no-untyped-def]
    x,
    weight,
    gain,
    floor,
    bias,
    out,
    sums,
    squares,
    arrivals,
    rows,
    depth,
    columns,
    part,
    x_row,
    weight_row,
    weight_column,
    out_row,
    evener,
    ROWS: tl.constexpr,  # noqa: N803
    COLUMNS: tl.constexpr,  # noqa: N803
    DEPTH: tl.constexpr,  # noqa: N803
    STAGES: tl.constexpr,  # noqa: N803
    LINE: tl.constexpr,  # noqa: N803
    DEEP: tl.constexpr,  # noqa: N803
    SPLIT: tl.constexpr,  # noqa: N803
    NORM: tl.constexpr,  # noqa: N803
    BIAS: tl.constexpr,  # noqa: N803
    RESIDUAL: tl.constexpr,  # noqa: N803
    OVERLAP: tl.constexpr,  # noqa: N803
):
    block, piece = tl.program_id(0), tl.program_id(1)
    row = tl.program_id(2) * ROWS + tl.arange(0, ROWS)
    column = block * COLUMNS + tl.arange(0, COLUMNS)
    begin = piece * part
    end = tl.minimum(begin + part, depth)
    steps = tl.arange(0, DEPTH)
    across = column.to(tl.int64) * weight_column
    if OVERLAP:
        for start in range(begin, end, DEPTH):
            if DEEP:
                n = tl.minimum(column, columns - 1).to(tl.int64) * weight_column
                for line in tl.static_range(0, DEPTH, LINE):
                    prefetch(weight + n + tl.minimum(start + line, end - 1), OVERLAP)
            else:
                k = tl.minimum(start + steps, end - 1).to(tl.int64) * weight_row
                for line in tl.static_range(0, COLUMNS, LINE):
                    prefetch(weight + k + tl.minimum(block * COLUMNS + line, columns - 1), OVERLAP)
    await_inputs(OVERLAP)

    # `gain` holds a factor sqrt(depth): without it products stay in float16's range.
    if ROWS == 1:
        products = tl.zeros((DEPTH, COLUMNS), tl.float32)
        lengths = tl.zeros((DEPTH,), tl.float32)
        for start in tl.range(begin, end, DEPTH, num_stages=STAGES):
            k = start + steps
            values = tl.load(x + k, mask=k < end, other=0.0).to(tl.float32)
            if NORM:
                lengths += values * values
                values *= tl.load(gain + k, mask=k < end, other=0.0).to(tl.float32) * evener
            at = weight + k[:, None].to(tl.int64) * weight_row + across[None, :]
            inside = (k[:, None] < end) & (column[None, :] < columns)
            products += values[:, None] * tl.load(at, mask=inside, other=0.0).to(tl.float32)
        total = tl.sum(products, axis=0)[None, :]
        square = tl.sum(lengths, axis=0) + tl.zeros((ROWS,), tl.float32)
    else:
        total = tl.zeros((ROWS, COLUMNS), tl.float32)
        area = tl.zeros((ROWS, DEPTH), tl.float32)
        for start in tl.range(begin, end, DEPTH, num_stages=STAGES):
            k = start + steps
            at = x + row[:, None].to(tl.int64) * x_row + k[None, :]
            inside = (row[:, None] < rows) & (k[None, :] < end)
            values = tl.load(at, mask=inside, other=0.0)
            if NORM:
                single = values.to(tl.float32)
                area += single * single
                factor = tl.load(gain + k, mask=k < end, other=0.0).to(tl.float32) * evener
                values = (single * factor[None, :]).to(weight.dtype.element_ty)
            at = weight + k[:, None].to(tl.int64) * weight_row + across[None, :]
            inside = (k[:, None] < end) & (column[None, :] < columns)
            weights = tl.load(at, mask=inside, other=0.0)
            total = tl.dot(values, weights, total, input_precision="ieee")
        square = tl.sum(area, axis=1)

    cell = row[:, None].to(tl.int64) * columns + column[None, :]
    inside = (row[:, None] < rows) & (column[None, :] < columns)
    last = True
    if SPLIT:
        size = tl.cast(rows, tl.int64) * columns
        side = block * rows + row
        width = tl.num_programs(0) * rows
        tl.store(sums + piece * size + cell, total, mask=inside)
        if NORM:
            tl.store(squares + piece * width + side, square, mask=row < rows)
        pieces = tl.num_programs(1)
        last = is_last(arrivals + tl.program_id(2) * tl.num_programs(0) + block, pieces)
        if last:
            total = tl.zeros((ROWS, COLUMNS), tl.float32)
            square = tl.zeros((ROWS,), tl.float32)
            for other in range(pieces):
                theirs = sums + other * size + cell
                total += tl.load(theirs, mask=inside, other=0.0, cache_modifier=".cg")
                if NORM:
                    length = squares + other * width + side
                    square += tl.load(length, mask=row < rows, other=0.0, cache_modifier=".cg")
    if last:
        if NORM:
            least = tl.load(floor).to(tl.float32)
            total *= (tl.rsqrt(square + least * least) / evener)[:, None]
        if BIAS:
            added = tl.load(bias + column, mask=column < columns, other=0.0)
            total += added.to(tl.float32)[None, :]
        target = out + row[:, None].to(tl.int64) * out_row + column[None, :]
        if RESIDUAL:
            total += tl.load(target, mask=inside, other=0.0).to(tl.float32)
        tl.store(target, total.to(out.dtype.element_ty), mask=inside)
