"""The first launch of a mixture of experts: norm, router and the shared experts' activation.

Programs, in this order: columns of the router, rows of the norm, columns of the shared experts. For
few rows the norm is fused into the products (`y = (x * gain) @ W * scale`, the scale at the end),
and the last of the router's programs to arrive chooses and sorts, while the shared experts' weights
still stream. Bytes moved: hidden * (experts + 2 * shared columns) weights, once for each tile of
rows.
"""

from __future__ import annotations

import torch
import triton
import triton.language as tl

from panel.kernels.expert_tiles import Tile, gated, multiply, multiply_gated, prefetch_columns
from panel.kernels.grouping import Groups, real_kind, route_block, slot_block, table_arguments
from panel.kernels.norm import rms_norm_reference
from panel.kernels.overlap import await_inputs, launch_options
from panel.kernels.router import Routing

ROUTER_COLUMNS = 16


def expert_input_reference(
    x: torch.Tensor,
    gain: torch.Tensor,
    floor: torch.Tensor,
    route: torch.Tensor,
    shared_gate_up: torch.Tensor,
) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
    """Return what `expert_input` writes, in float32."""
    normed = rms_norm_reference(x.float(), gain, floor)
    gate, up = (normed @ shared_gate_up.float()).chunk(2, dim=1)
    return normed, normed @ route.float(), torch.nn.functional.silu(gate) * up


def expert_input(
    x: torch.Tensor,
    gain: torch.Tensor | None,
    floor: torch.Tensor | None,
    route: torch.Tensor,
    shared_gate_up: torch.Tensor,
    normed: torch.Tensor,
    logits: torch.Tensor,
    shared: torch.Tensor,
    tile: Tile,
    *,
    bias: torch.Tensor | None = None,
    routing: Routing | None = None,
    groups: Groups | None = None,
    slots: int = 1,
    height: int = 16,
    table: torch.Tensor | None = None,
    real: torch.Tensor | None = None,
    counts: torch.Tensor | None = None,
) -> None:
    """Write `normed` [rows, hidden], `logits` float32 [rows, experts], `shared` [rows, columns].

    Shapes: x [rows, hidden]; gain [hidden] and floor as in `rms_norm`, None where x is normed
    already (then `normed` is left alone); route [hidden, experts]; shared_gate_up [hidden, 2 *
    columns], no columns without shared experts. With `groups` it also does what `route` does; only
    for as many rows as one tile has.
    """
    rows, hidden = x.shape
    experts, columns = route.shape[1], shared.shape[1]
    row_blocks = triton.cdiv(rows, tile.rows)
    norms = 0 if gain is None else rows
    router = triton.cdiv(experts, ROUTER_COLUMNS)
    choosing = groups is not None
    if choosing and row_blocks > 1:
        raise ValueError(f"{rows} rows are more than the {tile.rows} of one tile")
    plain = routing or Routing(experts, 1)
    tables = groups or Groups(*(logits,) * 9)
    _kernel[((router + triton.cdiv(columns, tile.columns)) * row_blocks + norms,)](
        x,
        x if gain is None else gain,
        x if floor is None else floor,
        route,
        shared_gate_up,
        normed,
        logits,
        shared,
        rows,
        norms,
        hidden,
        columns,
        x.stride(0),
        bias,
        experts,
        *table_arguments(table, real, counts, tables),
        slots,
        NORM=gain is not None,
        CHOOSING=choosing,
        BR=ROUTER_COLUMNS,
        WIDTH=triton.next_power_of_2(hidden),
        AHEAD=row_blocks == 1,
        SB=slot_block(slots),
        HEIGHT=height,
        **real_kind(real),
        **plain.constants,
        **tile.launch(hidden),
        **launch_options(x.device),
    )


@triton.jit(do_not_specialize=["rows", "norms"])  # type: ignore[untyped-decorator]
def _kernel(  # type: ignore[no-untyped-def]
    x,
    gain,
    floor,
    route,
    shared_gate_up,
    normed,
    logits,
    shared,
    rows,
    norms,
    hidden,
    columns,
    x_stride,
    bias,
    experts,
    table,
    turns,
    real,
    counts,
    ids,
    weights,
    place,
    pair_row,
    pair_weight,
    tiles,
    most,
    total,
    blocks,
    ticket,
    slots,
    NORM: tl.constexpr,  # noqa: N803
    CHOOSING: tl.constexpr,  # noqa: N803
    BM: tl.constexpr,  # noqa: N803
    BN: tl.constexpr,  # noqa: N803
    BK: tl.constexpr,  # noqa: N803
    BR: tl.constexpr,  # noqa: N803
    WIDTH: tl.constexpr,  # noqa: N803
    SWAP: tl.constexpr,  # noqa: N803
    EVEN: tl.constexpr,  # noqa: N803
    AHEAD: tl.constexpr,  # noqa: N803
    OVERLAP: tl.constexpr,  # noqa: N803
    SB: tl.constexpr,  # noqa: N803
    HEIGHT: tl.constexpr,  # noqa: N803
    REAL: tl.constexpr,  # noqa: N803
    K: tl.constexpr,  # noqa: N803
    KB: tl.constexpr,  # noqa: N803
    EB: tl.constexpr,  # noqa: N803
    SIGMOID: tl.constexpr,  # noqa: N803
    NORMALISE: tl.constexpr,  # noqa: N803
    GROUPS: tl.constexpr,  # noqa: N803
    GROUPS_KEPT: tl.constexpr,  # noqa: N803
    GROUP_BEST: tl.constexpr,  # noqa: N803
):
    program = tl.program_id(0)
    row_blocks = tl.cdiv(rows, BM)
    router = tl.cdiv(experts, BR) * row_blocks
    if program < router:
        row = program % row_blocks * BM + tl.arange(0, BM)
        column = program // row_blocks * BR + tl.arange(0, BR)
        source = x + row.to(tl.int64) * x_stride
        here, exists = row < rows, column < experts
        start = program // row_blocks * BR
        prefetch_columns(route, experts, 0, hidden, start, experts, BR, BK, OVERLAP and AHEAD)
        await_inputs(OVERLAP)
        result, squares = _logits(
            source, here, gain, route, experts, hidden, column, exists, BM, BR, BK, EVEN, NORM
        )
        if NORM:
            result *= _scale(squares, floor)[:, None]
        tl.store(
            logits + row[:, None] * experts + column[None, :],
            result,
            mask=here[:, None] & exists[None, :],
        )
        if CHOOSING:
            tl.debug_barrier()
            if tl.atomic_add(ticket, 1, sem="acq_rel") == router - 1:
                tl.store(ticket, 0)
                route_block(
                    0, logits, bias, rows, experts, table, turns, real, counts, ids, weights,
                    place, pair_row, pair_weight, tiles, most, total, blocks, slots, BM, SB,
                    HEIGHT, True, REAL, K, KB, EB, SIGMOID, NORMALISE, GROUPS, GROUPS_KEPT,
                    GROUP_BEST,
                )  # fmt: skip
    elif program < router + norms:
        await_inputs(OVERLAP)
        at = (program - router).to(tl.int64)
        inner = tl.arange(0, WIDTH)
        wide = tl.load(x + at * x_stride + inner, mask=inner < hidden, other=0.0).to(tl.float32)
        factor = tl.load(gain + inner, mask=inner < hidden, other=0.0).to(tl.float32)
        wide = wide * _scale(tl.sum(wide * wide, axis=0), floor) * factor
        tl.store(
            normed + at * hidden + inner, wide.to(normed.dtype.element_ty), mask=inner < hidden
        )
    else:
        unit = program - router - norms
        row = unit % row_blocks * BM + tl.arange(0, BM)
        column = unit // row_blocks * BN + tl.arange(0, BN)
        source = x + row.to(tl.int64) * x_stride
        here, exists = row < rows, column < columns
        start, line = unit // row_blocks * BN, 2 * columns
        ahead: tl.constexpr = OVERLAP and AHEAD
        prefetch_columns(shared_gate_up, line, 0, hidden, start, columns, BN, BK, ahead)
        prefetch_columns(shared_gate_up, line, 0, hidden, start + columns, line, BN, BK, ahead)
        await_inputs(OVERLAP)
        gates, ups, squares = multiply_gated(
            source, here, gain, shared_gate_up, line, columns, hidden, column, exists,
            BM, BN, BK, SWAP, EVEN, NORM,
        )  # fmt: skip
        if NORM:
            scale = _scale(squares, floor)[:, None]
            gates *= scale
            ups *= scale
        tl.store(
            shared + row.to(tl.int64)[:, None] * columns + column[None, :],
            gated(gates, ups).to(shared.dtype.element_ty),
            mask=here[:, None] & exists[None, :],
        )


@triton.jit
def _scale(squares, floor):  # type: ignore[no-untyped-def]
    least = tl.load(floor).to(tl.float32)
    return tl.rsqrt(squares + least * least)


@triton.jit  # type: ignore[untyped-decorator]
def _logits(  # type: ignore[no-untyped-def]
    source,
    here,
    gain,
    weights,
    line,
    length,
    column,
    exists,
    BM: tl.constexpr,  # noqa: N803
    BN: tl.constexpr,  # noqa: N803
    BK: tl.constexpr,  # noqa: N803
    EVEN: tl.constexpr,  # noqa: N803
    NORM: tl.constexpr,  # noqa: N803
):
    """Return the logits of some columns, float32 [BM, BN], and the rows' squared lengths [BM]."""
    squares = tl.zeros([BM, BK if NORM else 1], dtype=tl.float32)
    if NORM:
        inner = tl.arange(0, BK)
        result = tl.zeros([BM, BN], dtype=tl.float32)
        for start in range(0, length, BK):
            k = start + inner
            within = k < length
            x = tl.load(
                source[:, None] + k[None, :], mask=here[:, None] & within[None, :], other=0.0
            )
            w = tl.load(
                weights + k[:, None] * line + column[None, :],
                mask=within[:, None] & exists[None, :],
                other=0.0,
            )
            factor = tl.load(gain + k, mask=within, other=0.0).to(tl.float32)
            wide = x.to(tl.float32)
            squares += wide * wide
            result = tl.dot((wide * factor[None, :]).to(x.dtype), w, result)
    else:
        result = multiply(
            source, here, weights, line, 0, length, column, exists, BM, BN, BK, False, EVEN
        )
    return result, tl.sum(squares, axis=1)
