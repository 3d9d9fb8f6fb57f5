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

from panel.kernels.arrivals import is_last
from panel.kernels.expert_gate_up import tile_of
from panel.kernels.expert_tiles import Tile, multiply_plain
from panel.kernels.grouping import Groups, most_tiles


def expert_down_reference(
    act: torch.Tensor, down: torch.Tensor, slots: list[list[int]]
) -> torch.Tensor:
    """Return the float32 sums [rows, hidden] for each row's slots; act [cells, columns]."""
    sums = torch.zeros(len(slots), down.shape[2])
    for row, choice in enumerate(slots):
        for turn, slot in enumerate(choice):
            if slot >= 0:
                sums[row] += act[row * len(choice) + turn].float() @ down[slot].float()
    return sums


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
    library: bool = False,
) -> None:
    """Write `residual` (or 0) and all experts' results for each row into `out` [rows, hidden].

    Shapes: act [rows * chosen, columns]; down [slots, columns, hidden]; shared [rows, shared
    columns]; shared_down [shared columns, hidden]; results [rows * (chosen + parts), hidden],
    scratch; tickets int32 [hidden / tile.columns], 0 between launches. `out` may be `residual`. The
    shared experts' columns are cut into `parts`, their rows into tiles of `shared_rows`; with
    `library` they are one part, by the library, and `results` has their type. `last_adds`: only for
    as many rows as one tile has.
    """
    rows, hidden = out.shape
    chosen = groups.ids.shape[1]
    slots, columns = down.shape[:2]
    shared_columns = shared_down.shape[0]
    parts = min(1 if library else parts, triton.cdiv(shared_columns, tile.inner))
    chunk = triton.cdiv(triton.cdiv(shared_columns, max(1, parts)), tile.inner) * tile.inner
    shared_rows = max(shared_rows, tile.rows)
    own_parts = 0 if library else parts
    if library and parts:
        pairs = rows * chosen
        torch.mm(shared, shared_down, out=results[pairs : pairs + rows])
    last_adds = last_adds and own_parts > 0
    if last_adds and rows > tile.rows:
        raise ValueError(f"{rows} rows are more than the {tile.rows} of one tile")
    units = triton.cdiv(hidden, tile.columns)
    tiles = triton.cdiv(most_tiles(rows, chosen, slots, tile.rows), tile.group) * tile.group
    strides = (out.stride(0), 0 if residual is None else residual.stride(0))
    _expert_down[((own_parts * triton.cdiv(rows, shared_rows) + tiles) * units,)](
        act,
        down,
        shared,
        shared_down,
        groups.slots,
        groups.cells,
        groups.tiles,
        groups.tiles.shape[1],
        groups.total,
        results,
        residual,
        out,
        tickets,
        rows,
        hidden,
        columns,
        shared_columns,
        chunk,
        down.stride(0),
        *strides,
        K=chosen,
        PARTS=own_parts,
        GROUP=tile.group,
        LAST_ADDS=last_adds,
        BS=shared_rows,
        **tile.launch(columns, shared_columns),
    )
    if not last_adds:
        width = min(512, int(triton.next_power_of_2(hidden)))
        _expert_sum[(rows, triton.cdiv(hidden, width))](
            groups.slots,
            results,
            residual,
            out,
            rows,
            hidden,
            *strides,
            K=chosen,
            PARTS=parts,
            WIDTH=width,
            num_warps=2,
        )


@triton.jit(do_not_specialize=["rows", "most"])  # type: ignore[untyped-decorator]
def _expert_down(  # type: ignore[no-untyped-def]
    act,
    down,
    shared,
    shared_down,
    slots,
    cells,
    tiles,
    most,
    total,
    results,
    residual,
    out,
    tickets,
    rows,
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
):
    program = tl.program_id(0)
    units = tl.cdiv(hidden, BN)
    row_blocks = tl.cdiv(rows, BS)
    everyones = PARTS * row_blocks * units
    if program < everyones:
        row = (program % row_blocks * BS + tl.arange(0, BS)).to(tl.int64)
        unit = program // row_blocks % units
        part = program // row_blocks // units
        column = unit * BN + tl.arange(0, BN)
        here, exists = row < rows, column < hidden
        begin, end = part * chunk, tl.minimum((part + 1) * chunk, shared_columns)
        result = multiply_plain(
            shared + row * shared_columns, here, shared_down, hidden, begin, end, column, exists,
            BS, BN, BK, SWAP, EVEN,
        )  # fmt: skip
        _write(results, rows * K + part * rows + row, column, hidden, result, here)
        if LAST_ADDS:
            _add_if_last(
                tickets, unit, PARTS + tl.load(total), slots, results, residual, out, rows, hidden,
                out_stride, residual_stride, BM, BN, K, PARTS,
            )  # fmt: skip
    else:
        tile, unit = tile_of(program - everyones, units, GROUP)
        if tile < tl.load(total):
            slot = tl.load(tiles + tile).to(tl.int64)
            pair = tl.load(tiles + most + tile) + tl.arange(0, BM)
            here = pair < tl.load(tiles + 2 * most + tile)
            cell = tl.load(cells + pair, mask=here, other=0).to(tl.int64)
            column = unit * BN + tl.arange(0, BN)
            result = multiply_plain(
                act + cell * columns, here, down + slot * slot_stride, hidden, 0, columns,
                column, column < hidden, BM, BN, BK, SWAP, EVEN,
            )  # fmt: skip
            _write(results, cell, column, hidden, result, here)
            if LAST_ADDS:
                _add_if_last(
                    tickets, unit, PARTS + tl.load(total), slots, results, residual, out, rows,
                    hidden, out_stride, residual_stride, BM, BN, K, PARTS,
                )  # fmt: skip


@triton.jit
def _write(results, row, column, hidden, result, here):  # type: ignore[no-untyped-def]
    tl.store(
        results + row.to(tl.int64)[:, None] * hidden + column[None, :],
        result.to(results.dtype.element_ty),
        mask=here[:, None] & (column < hidden)[None, :],
    )


@triton.jit  # type: ignore[untyped-decorator]
def _add_if_last(  # type: ignore[no-untyped-def]
    tickets,
    unit,
    arrivals,
    slots,
    results,
    residual,
    out,
    rows,
    hidden,
    out_stride,
    residual_stride,
    BM: tl.constexpr,  # noqa: N803
    BN: tl.constexpr,  # noqa: N803
    K: tl.constexpr,  # noqa: N803
    PARTS: tl.constexpr,  # noqa: N803
):
    if is_last(tickets + unit, arrivals):
        _add_results(
            tl.arange(0, BM), unit * BN + tl.arange(0, BN), slots, results, residual, out, rows,
            hidden, out_stride, residual_stride, K, PARTS,
        )  # fmt: skip


@triton.jit  # type: ignore[untyped-decorator]
def _add_results(  # type: ignore[no-untyped-def]
    row,
    column,
    slots,
    results,
    residual,
    out,
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
    wide = row.to(tl.int64)
    total = tl.zeros([row.shape[0], column.shape[0]], dtype=tl.float32)
    for turn in tl.static_range(K):
        slot = tl.load(slots + wide * K + turn, mask=here, other=-1)
        at = results + (wide * K + turn)[:, None] * hidden + column[None, :]
        found = (slot >= 0)[:, None] & exists
        total += tl.load(at, mask=found, other=0.0, cache_modifier=".cg").to(tl.float32)
    for part in tl.static_range(PARTS):
        at = results + (rows * (K + part) + wide)[:, None] * hidden + column[None, :]
        total += tl.load(at, mask=inside, other=0.0, cache_modifier=".cg").to(tl.float32)
    if residual is not None:
        at = residual + wide[:, None] * residual_stride + column[None, :]
        total += tl.load(at, mask=inside, other=0.0).to(tl.float32)
    at = out + wide[:, None] * out_stride + column[None, :]
    tl.store(at, total.to(out.dtype.element_ty), mask=inside)


@triton.jit(do_not_specialize=["rows"])  # type: ignore[untyped-decorator]
def _expert_sum(  # type: ignore[no-untyped-def]
    slots,
    results,
    residual,
    out,
    rows,
    hidden,
    out_stride,
    residual_stride,
    K: tl.constexpr,  # noqa: N803
    PARTS: tl.constexpr,  # noqa: N803
    WIDTH: tl.constexpr,  # noqa: N803
):
    row = tl.program_id(0) + tl.arange(0, 1)
    column = tl.program_id(1) * WIDTH + tl.arange(0, WIDTH)
    _add_results(
        row, column, slots, results, residual, out, rows, hidden, out_stride, residual_stride,
        K, PARTS,
    )  # fmt: skip
