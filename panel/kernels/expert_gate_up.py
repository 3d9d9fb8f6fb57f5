"""Grouped product of the routed experts' first weights, with gate and weighting fused.

A program takes one tile of pairs and some columns, gates and ups alike. Few rows need no tables:
each program chooses for all of them, takes the expert whose turn it is and masks the rows that
went elsewhere; one program more fills the tables for the next launch, and others do the shared
experts' part. Bytes moved: hidden * 2 * columns weights of each expert that has pairs, once where
its pairs fit one tile.
"""

from __future__ import annotations

import torch
import triton
import triton.language as tl

from panel.kernels.expert_route import COUNTS, Choice, pick, route_block
from panel.kernels.expert_shared import share
from panel.kernels.expert_tiles import Tile, multiply_gated
from panel.kernels.grouping import Groups, most_tiles


def expert_gate_up_reference(
    normed: torch.Tensor, gate_up: torch.Tensor, pairs: list[tuple[int, int, float]]
) -> torch.Tensor:
    """Return float32 [pairs, columns] for pairs of slot, row and weight."""
    results = []
    for slot, row, weight in pairs:
        gate, up = (normed[row].float() @ gate_up[slot].float()).chunk(2)
        results.append(torch.nn.functional.silu(gate) * up * weight)
    return torch.stack(results)


def expert_gate_up(
    normed: torch.Tensor,
    gate_up: torch.Tensor,
    groups: Groups,
    act: torch.Tensor,
    tile: Tile,
) -> None:
    """Write `silu(gate) * up * weight` of each pair into its cell of `act` [cells, columns].

    Shapes: normed [rows, hidden]; gate_up [slots, hidden, 2 * columns], all gates, then all ups.
    The tiles of `groups` have at most `tile.rows` pairs.
    """
    rows, hidden = normed.shape
    slots, columns = gate_up.shape[0], gate_up.shape[2] // 2
    chosen = groups.ids.shape[1]
    tiles = triton.cdiv(most_tiles(rows, chosen, slots, tile.rows), tile.group) * tile.group
    _expert_gate_up[(tiles * triton.cdiv(columns, tile.columns),)](
        normed,
        gate_up,
        groups.weights,
        groups.cells,
        groups.tiles,
        groups.tiles.shape[1],
        groups.total,
        act,
        hidden,
        columns,
        gate_up.stride(0),
        K=chosen,
        GROUP=tile.group,
        **tile.launch(hidden),
    )


def choose_share_and_gate_up(
    normed: torch.Tensor,
    gate_up: torch.Tensor,
    shared_gate_up: torch.Tensor,
    choice: Choice,
    act: torch.Tensor,
    shared: torch.Tensor,
    tile: Tile,
) -> None:
    """Do what `route_and_share` and `expert_gate_up` do, for as many rows as one tile has."""
    rows, hidden = normed.shape
    if rows > tile.rows:
        raise ValueError(f"{rows} rows are more than the {tile.rows} of one tile")
    columns, shared_columns = act.shape[1], shared.shape[1]
    experts = min(rows * choice.routing.chosen, choice.slots)
    tiles = triton.cdiv(experts, tile.group) * tile.group
    shares = triton.cdiv(shared_columns, tile.columns)
    units = triton.cdiv(columns, tile.columns)
    _expert_gate_up_few[(1 + shares + tiles * units,)](
        *choice.arguments,
        normed,
        gate_up,
        shared_gate_up,
        act,
        shared,
        hidden,
        columns,
        shared_columns,
        gate_up.stride(0),
        GROUP=tile.group,
        **choice.constants,
        **tile.launch(hidden),
    )


@triton.jit(do_not_specialize=["most"])  # type: ignore[untyped-decorator]
def _expert_gate_up(  # type: ignore[no-untyped-def]
    normed,
    gate_up,
    weights,
    cells,
    tiles,
    most,
    total,
    act,
    hidden,
    columns,
    slot_stride,
    K: tl.constexpr,  # noqa: N803
    BM: tl.constexpr,  # noqa: N803
    BN: tl.constexpr,  # noqa: N803
    BK: tl.constexpr,  # noqa: N803
    GROUP: tl.constexpr,  # noqa: N803
    SWAP: tl.constexpr,  # noqa: N803
    EVEN: tl.constexpr,  # noqa: N803
):
    tile, unit = tile_of(tl.program_id(0), tl.cdiv(columns, BN), GROUP)
    if tile < tl.load(total):
        slot = tl.load(tiles + tile).to(tl.int64)
        pair = tl.load(tiles + most + tile) + tl.arange(0, BM)
        here = pair < tl.load(tiles + 2 * most + tile)
        cell = tl.load(cells + pair, mask=here, other=0)
        weight = tl.load(weights + cell, mask=here, other=0.0)
        result = multiply_gated(
            normed + (cell // K).to(tl.int64) * hidden, here, gate_up + slot * slot_stride,
            columns, hidden, unit * BN, BM, BN, BK, SWAP, EVEN,
        )  # fmt: skip
        _write(act, cell, unit * BN, columns, result * weight[:, None], here, BN)


@triton.jit(do_not_specialize=COUNTS)  # type: ignore[untyped-decorator]
def _expert_gate_up_few(  # type: ignore[no-untyped-def]
    logits,
    bias,
    rows,
    experts,
    table,
    turns,
    real,
    counts,
    ids,
    weights,
    slots,
    cells,
    tiles,
    most,
    total,
    blocks,
    ticket,
    slot_count,
    normed,
    gate_up,
    shared_gate_up,
    act,
    shared,
    hidden,
    columns,
    shared_columns,
    slot_stride,
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
    BM: tl.constexpr,  # noqa: N803
    BN: tl.constexpr,  # noqa: N803
    BK: tl.constexpr,  # noqa: N803
    GROUP: tl.constexpr,  # noqa: N803
    SWAP: tl.constexpr,  # noqa: N803
    EVEN: tl.constexpr,  # noqa: N803
):
    program = tl.program_id(0)
    shares = tl.cdiv(shared_columns, BN)
    if program == 0:
        route_block(
            0, logits, bias, rows, experts, table, turns, real, counts, ids, weights, slots, cells,
            tiles, most, total, blocks, ticket, slot_count, BM, True, SB, HEIGHT, REAL,
            K, KB, EB, SIGMOID, NORMALISE, GROUPS, GROUPS_KEPT, GROUP_BEST,
        )  # fmt: skip
    elif program <= shares:
        share(
            program - 1, normed, shared_gate_up, shared, rows, hidden, shared_columns,
            BM, BN, BK, SWAP, EVEN,
        )  # fmt: skip
    else:
        tile, unit = tile_of(program - 1 - shares, tl.cdiv(columns, BN), GROUP)
        row = tl.arange(0, BM)
        _, weight, slot, members, _ = pick(
            row, logits, bias, rows, experts, table, turns, real, SB, REAL,
            K, KB, EB, SIGMOID, NORMALISE, GROUPS, GROUPS_KEPT, GROUP_BEST,
        )  # fmt: skip
        used = tl.max(members, axis=0)
        if tile < tl.sum(used, axis=0):
            turn_of_slot = tl.cumsum(used, axis=0) - used
            chosen = (used > 0) & (turn_of_slot == tile)
            mine = tl.sum(tl.where(chosen, tl.arange(0, SB), 0), axis=0)
            match = slot == mine
            turn = tl.max(tl.where(match, tl.arange(0, KB)[None, :], -1), axis=1)
            factor = tl.sum(tl.where(match, weight, 0.0), axis=1)
            here = turn >= 0
            result = multiply_gated(
                normed + row.to(tl.int64) * hidden, here, gate_up + mine.to(tl.int64) * slot_stride,
                columns, hidden, unit * BN, BM, BN, BK, SWAP, EVEN,
            )  # fmt: skip
            cell = row * K + turn
            _write(act, cell, unit * BN, columns, result * factor[:, None], here, BN)


@triton.jit  # type: ignore[untyped-decorator]
def _write(act, cell, first, columns, result, here, BN: tl.constexpr):  # type: ignore[no-untyped-def]  # noqa: N803
    column = first + tl.arange(0, BN)
    tl.store(
        act + cell.to(tl.int64)[:, None] * columns + column[None, :],
        result.to(act.dtype.element_ty),
        mask=here[:, None] & (column < columns)[None, :],
    )


@triton.jit  # type: ignore[untyped-decorator]
def tile_of(program, units, GROUP: tl.constexpr):  # type: ignore[no-untyped-def]  # noqa: N803
    """Return tile of rows and unit of columns: `GROUP` tiles go through the columns together."""
    within = program % (GROUP * units)
    return program // (GROUP * units) * GROUP + within % GROUP, within // GROUP
