"""Grouped product of the experts' last weights, routed and shared, and the sum for each row.

Each pair's result and each part of the shared experts' result is a row of its own; then they are
added in a fixed order, so that the sum is the same always. For few rows the last program to arrive
at some columns adds them; else a launch of its own does. Bytes moved: columns * hidden weights of
each expert that has pairs, once where its pairs fit one tile; and the results, written and read.
"""

from __future__ import annotations

import torch
import triton
import triton.language as tl

from panel.kernels.expert_gate_up import tile_of
from panel.kernels.expert_tiles import Tile, multiply, prefetch_columns
from panel.kernels.grouping import Groups, most_tiles
from panel.kernels.overlap import await_inputs, launch_options


def expert_down_reference(
    act: torch.Tensor, down: torch.Tensor, slots: list[int], place: list[list[int]]
) -> torch.Tensor:
    """Return the float32 sums [rows, hidden] for the slots of the sorted pairs and their places."""
    results = [act[pair].float() @ down[slot].float() for pair, slot in enumerate(slots)]
    zero = torch.zeros(down.shape[2])
    return torch.stack([sum((results[n] for n in row if n >= 0), zero) for row in place])


def expert_down(
    act: torch.Tensor,
    down: torch.Tensor,
    shared: torch.Tensor,
    shared_down: torch.Tensor,
    groups: Groups,
    results: torch.Tensor,
    residual: torch.Tensor | None,
    out: torch.Tensor,
    tickets: torch.Tensor,
    tile: Tile,
    *,
    parts: int = 1,
    shared_rows: int = 16,
    last_adds: bool = False,
) -> None:
    """Write `residual` (or 0) and all experts' results for each row into `out` [rows, hidden].

    Shapes: act [pairs, columns]; down [slots, columns, hidden]; shared [rows, shared columns];
    shared_down [shared columns, hidden]; results [rows * (chosen + parts), hidden], scratch;
    tickets int32 [hidden / tile.columns], 0 between launches. `out` may be `residual`. The shared
    experts' columns are cut into `parts`, their rows into tiles of `shared_rows`. `last_adds`: only
    for as many rows as one tile has.
    """
    rows, hidden = out.shape
    chosen = groups.place.shape[1]
    slots, columns = down.shape[:2]
    shared_columns = shared_down.shape[0]
    parts = min(parts, triton.cdiv(shared_columns, tile.inner))
    chunk = triton.cdiv(triton.cdiv(shared_columns, max(1, parts)), tile.inner) * tile.inner
    shared_rows = max(shared_rows, tile.rows)
    row_blocks = triton.cdiv(rows, shared_rows)
    last_adds = last_adds and parts > 0
    if last_adds and rows > tile.rows:
        raise ValueError(f"{rows} rows are more than the {tile.rows} of one tile")
    units = triton.cdiv(hidden, tile.columns)
    tiles = triton.cdiv(most_tiles(rows, chosen, slots, tile.rows), tile.group) * tile.group
    _kernel[((parts * row_blocks + tiles) * units,)](
        act,
        down,
        shared,
        shared_down,
        groups.place,
        groups.tiles,
        groups.tiles.shape[1],
        groups.total,
        results,
        residual,
        out,
        tickets,
        rows,
        rows * chosen,
        hidden,
        columns,
        shared_columns,
        chunk,
        down.stride(0),
        out.stride(0),
        0 if residual is None else residual.stride(0),
        K=chosen,
        PARTS=parts,
        GROUP=tile.group,
        LAST_ADDS=last_adds,
        BS=shared_rows,
        AHEAD=row_blocks == 1,
        **tile.launch(columns, shared_columns),
        **launch_options(out.device),
    )
    if not last_adds:
        width = min(512, int(triton.next_power_of_2(hidden)))
        _sum[(rows, triton.cdiv(hidden, width))](
            groups.place,
            results,
            residual,
            out,
            rows * chosen,
            rows,
            hidden,
            out.stride(0),
            0 if residual is None else residual.stride(0),
            K=chosen,
            PARTS=parts,
            WIDTH=width,
            num_warps=2,
            **launch_options(out.device),
        )


@triton.jit(do_not_specialize=["rows", "pairs"])  # type: ignore[untyped-decorator]
def _kernel(  # type: ignore[no-untyped-def]
    act,
    down,
    shared,
    shared_down,
    place,
    tiles,
    most,
    total,
    results,
    residual,
    out,
    tickets,
    rows,
    pairs,
    hidden,
    columns,
    shared_columns,
    chunk,
    slot_stride,
    out_stride,
    residual_stride,
    K: tl.constexpr,  # noqa: N803
    PARTS: tl.constexpr,  # noqa: N803
    BM: tl.constexpr,  # noqa: N803
    BN: tl.constexpr,  # noqa: N803
    BK: tl.constexpr,  # noqa: N803
    GROUP: tl.constexpr,  # noqa: N803
    SWAP: tl.constexpr,  # noqa: N803
    EVEN: tl.constexpr,  # noqa: N803
    LAST_ADDS: tl.constexpr,  # noqa: N803
    BS: tl.constexpr,  # noqa: N803
    AHEAD: tl.constexpr,  # noqa: N803
    OVERLAP: tl.constexpr,  # noqa: N803
):
    program = tl.program_id(0)
    units = tl.cdiv(hidden, BN)
    row_blocks = tl.cdiv(rows, BS)
    everyones = PARTS * row_blocks * units
    if program < everyones:
        row = program % row_blocks * BS + tl.arange(0, BS)
        unit = program // row_blocks % units
        part = program // row_blocks // units
        column = unit * BN + tl.arange(0, BN)
        here, exists = row < rows, column < hidden
        begin, end = part * chunk, tl.minimum((part + 1) * chunk, shared_columns)
        prefetch_columns(
            shared_down, hidden, begin, end, unit * BN, hidden, BN, BK, OVERLAP and AHEAD
        )
        await_inputs(OVERLAP)
        result = multiply(
            shared + row.to(tl.int64) * shared_columns, here, shared_down, hidden, begin, end,
            column, exists, BS, BN, BK, SWAP, EVEN,
        )  # fmt: skip
        at = (pairs + part * rows + row).to(tl.int64) * hidden
        _write(results, at, column, result, here, exists)
        if LAST_ADDS:
            _add_if_last(
                tickets, unit, PARTS + tl.load(total), place, results, residual, out, pairs, rows,
                hidden, out_stride, residual_stride, BM, BN, K, PARTS,
            )  # fmt: skip
    else:
        await_inputs(OVERLAP)
        tile, unit = tile_of(program - everyones, units, GROUP)
        if tile < tl.load(total):
            slot = tl.load(tiles + tile).to(tl.int64)
            pair = tl.load(tiles + most + tile) + tl.arange(0, BM)
            here = pair < tl.load(tiles + 2 * most + tile)
            column = unit * BN + tl.arange(0, BN)
            exists = column < hidden
            result = multiply(
                act + pair.to(tl.int64) * columns, here, down + slot * slot_stride, hidden, 0,
                columns, column, exists, BM, BN, BK, SWAP, EVEN,
            )  # fmt: skip
            _write(results, pair.to(tl.int64) * hidden, column, result, here, exists)
            if LAST_ADDS:
                _add_if_last(
                    tickets, unit, PARTS + tl.load(total), place, results, residual, out, pairs,
                    rows, hidden, out_stride, residual_stride, BM, BN, K, PARTS,
                )  # fmt: skip


@triton.jit
def _write(results, at, column, result, here, exists):  # type: ignore[no-untyped-def]
    tl.store(
        results + at[:, None] + column[None, :],
        result.to(results.dtype.element_ty),
        mask=here[:, None] & exists[None, :],
    )


@triton.jit  # type: ignore[untyped-decorator]
def _add_if_last(  # type: ignore[no-untyped-def]
    tickets,
    unit,
    arrivals,
    place,
    results,
    residual,
    out,
    pairs,
    rows,
    hidden,
    out_stride,
    residual_stride,
    BM: tl.constexpr,  # noqa: N803
    BN: tl.constexpr,  # noqa: N803
    K: tl.constexpr,  # noqa: N803
    PARTS: tl.constexpr,  # noqa: N803
):
    tl.debug_barrier()
    if tl.atomic_add(tickets + unit, 1, sem="acq_rel") == arrivals - 1:
        tl.store(tickets + unit, 0)
        add_results(
            tl.arange(0, BM), unit * BN + tl.arange(0, BN), place, results, residual, out, pairs,
            rows, hidden, out_stride, residual_stride, K, PARTS,
        )  # fmt: skip


@triton.jit  # type: ignore[untyped-decorator]
def add_results(  # type: ignore[no-untyped-def]
    row,
    column,
    place,
    results,
    residual,
    out,
    pairs,
    rows,
    hidden,
    out_stride,
    residual_stride,
    K: tl.constexpr,  # noqa: N803
    PARTS: tl.constexpr,  # noqa: N803
):
    """Write the sum of some rows and columns: choices best first, shared parts, residual."""
    here = row < rows
    exists = (column < hidden)[None, :]
    inside = here[:, None] & exists
    total = tl.zeros([row.shape[0], column.shape[0]], dtype=tl.float32)
    for number in tl.static_range(K):
        pair = tl.load(place + row * K + number, mask=here, other=-1)
        at = results + pair.to(tl.int64)[:, None] * hidden + column[None, :]
        found = (pair >= 0)[:, None] & exists
        total += tl.load(at, mask=found, other=0.0, cache_modifier=".cg").to(tl.float32)
    for part in tl.static_range(PARTS):
        at = results + (pairs + part * rows + row).to(tl.int64)[:, None] * hidden + column[None, :]
        total += tl.load(at, mask=inside, other=0.0, cache_modifier=".cg").to(tl.float32)
    if residual is not None:
        at = residual + row.to(tl.int64)[:, None] * residual_stride + column[None, :]
        total += tl.load(at, mask=inside, other=0.0).to(tl.float32)
    at = out + row.to(tl.int64)[:, None] * out_stride + column[None, :]
    tl.store(at, total.to(out.dtype.element_ty), mask=inside)


@triton.jit(do_not_specialize=["rows", "pairs"])  # type: ignore[untyped-decorator]
def _sum(  # type: ignore[no-untyped-def]
    place,
    results,
    residual,
    out,
    pairs,
    rows,
    hidden,
    out_stride,
    residual_stride,
    K: tl.constexpr,  # noqa: N803
    PARTS: tl.constexpr,  # noqa: N803
    WIDTH: tl.constexpr,  # noqa: N803
    OVERLAP: tl.constexpr,  # noqa: N803
):
    await_inputs(OVERLAP)
    row = tl.program_id(0) + tl.arange(0, 1)
    column = tl.program_id(1) * WIDTH + tl.arange(0, WIDTH)
    add_results(
        row, column, place, results, residual, out, pairs, rows, hidden, out_stride,
        residual_stride, K, PARTS,
    )  # fmt: skip
