"""Grouped product of the routed experts' first weights, with gate and weighting fused.

A program takes one tile of pairs and some columns, gates and ups alike. Bytes moved: hidden * 2 *
columns weights of each expert that has pairs, once where its pairs fit one tile.
"""

from __future__ import annotations

import torch
import triton
import triton.language as tl

from panel.kernels.expert_tiles import Tile, gated, multiply_gated
from panel.kernels.grouping import Groups, most_tiles
from panel.kernels.overlap import await_inputs, launch_options


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
    *,
    chosen: int,
) -> None:
    """Write `silu(gate) * up * weight` of each sorted pair into `act` [pairs, columns].

    Shapes: normed [rows, hidden]; gate_up [slots, hidden, 2 * columns], all gates, then all ups.
    The tiles of `groups` have at most `tile.rows` pairs.
    """
    rows, hidden = normed.shape
    slots, columns = gate_up.shape[0], gate_up.shape[2] // 2
    tiles = most_tiles(rows, chosen, slots, tile.rows)
    _kernel[(triton.cdiv(tiles, tile.group) * tile.group * triton.cdiv(columns, tile.columns),)](
        normed,
        gate_up,
        groups.pair_row,
        groups.pair_weight,
        groups.tiles,
        groups.tiles.shape[1],
        groups.total,
        act,
        hidden,
        columns,
        gate_up.stride(0),
        GROUP=tile.group,
        **tile.launch(hidden),
        **launch_options(act.device),
    )


@triton.jit  # type: ignore[untyped-decorator]
def _kernel(  # type: ignore[no-untyped-def]
    normed,
    gate_up,
    pair_row,
    pair_weight,
    tiles,
    most,
    total,
    act,
    hidden,
    columns,
    slot_stride,
    BM: tl.constexpr,  # noqa: N803
    BN: tl.constexpr,  # noqa: N803
    BK: tl.constexpr,  # noqa: N803
    GROUP: tl.constexpr,  # noqa: N803
    SWAP: tl.constexpr,  # noqa: N803
    EVEN: tl.constexpr,  # noqa: N803
    OVERLAP: tl.constexpr,  # noqa: N803
):
    await_inputs(OVERLAP)
    tile, unit = tile_of(tl.program_id(0), tl.cdiv(columns, BN), GROUP)
    if tile < tl.load(total):
        slot = tl.load(tiles + tile).to(tl.int64)
        pair = tl.load(tiles + most + tile) + tl.arange(0, BM)
        here = pair < tl.load(tiles + 2 * most + tile)
        column = unit * BN + tl.arange(0, BN)
        exists = column < columns
        row = tl.load(pair_row + pair, mask=here, other=0).to(tl.int64)
        gates, ups, _ = multiply_gated(
            normed + row * hidden, here, normed, gate_up + slot * slot_stride, 2 * columns, columns,
            hidden, column, exists, BM, BN, BK, SWAP, EVEN, False,
        )  # fmt: skip
        weight = tl.load(pair_weight + pair, mask=here, other=0.0)
        tl.store(
            act + pair.to(tl.int64)[:, None] * columns + column[None, :],
            (gated(gates, ups) * weight[:, None]).to(act.dtype.element_ty),
            mask=here[:, None] & exists[None, :],
        )


@triton.jit  # type: ignore[untyped-decorator]
def tile_of(program, units, GROUP: tl.constexpr):  # type: ignore[no-untyped-def]  # noqa: N803
    """Return tile of rows and unit of columns: `GROUP` tiles go through the columns together."""
    within = program % (GROUP * units)
    return program // (GROUP * units) * GROUP + within % GROUP, within // GROUP
