"""The shared experts' activation, beside the route that it hides; and the same by the library.

Bytes moved: hidden * 2 * columns weights, once for each tile of rows.
"""

from __future__ import annotations

import torch
import triton
import triton.language as tl

from panel.kernels.expert_route import BLOCK, COUNTS, Choice, route_block
from panel.kernels.expert_tiles import Tile, gated, multiply_gated


def share_reference(normed: torch.Tensor, gate_up: torch.Tensor) -> torch.Tensor:
    """Return `silu(gate) * up`, float32 [rows, columns]."""
    gate, up = (normed.float() @ gate_up.float()).chunk(2, dim=1)
    return torch.nn.functional.silu(gate) * up


def route_and_share(
    normed: torch.Tensor, gate_up: torch.Tensor, choice: Choice, shared: torch.Tensor, tile: Tile
) -> None:
    """Do what `route` does for at most `SORTED_ROWS` rows, and write the activation.

    Shapes: normed [rows, hidden]; gate_up [hidden, 2 * columns]; shared [rows, columns].
    """
    rows, hidden = normed.shape
    columns = shared.shape[1]
    routes = triton.cdiv(rows, BLOCK)
    shares = triton.cdiv(columns, tile.columns) * triton.cdiv(rows, tile.rows)
    _expert_input[(routes + shares,)](
        *choice.arguments,
        normed,
        gate_up,
        shared,
        hidden,
        columns,
        R=BLOCK,
        **choice.constants,
        **tile.launch(hidden),
    )


def share_by_library(
    normed: torch.Tensor, gate_up: torch.Tensor, both: torch.Tensor, shared: torch.Tensor
) -> None:
    """Write the activation of many rows; `both` [rows, 2 * columns] is scratch."""
    torch.mm(normed, gate_up, out=both)
    rows, columns = shared.shape
    width = min(1024, int(triton.next_power_of_2(columns)))
    _expert_activation[(rows, triton.cdiv(columns, width))](both, shared, columns, WIDTH=width)


@triton.jit  # type: ignore[untyped-decorator]
def share(  # type: ignore[no-untyped-def]
    program,
    normed,
    gate_up,
    shared,
    rows,
    hidden,
    columns,
    BM: tl.constexpr,  # noqa: N803
    BN: tl.constexpr,  # noqa: N803
    BK: tl.constexpr,  # noqa: N803
    SWAP: tl.constexpr,  # noqa: N803
    EVEN: tl.constexpr,  # noqa: N803
):
    """Write the shared experts' activation for one tile of rows and some columns."""
    row_blocks = tl.cdiv(rows, BM)
    row = (program % row_blocks * BM + tl.arange(0, BM)).to(tl.int64)
    first = program // row_blocks * BN
    column = first + tl.arange(0, BN)
    here = row < rows
    result = multiply_gated(
        normed + row * hidden, here, gate_up, columns, hidden, first, BM, BN, BK, SWAP, EVEN
    )
    tl.store(
        shared + row[:, None] * columns + column[None, :],
        result.to(shared.dtype.element_ty),
        mask=here[:, None] & (column < columns)[None, :],
    )


@triton.jit(do_not_specialize=COUNTS)  # type: ignore[untyped-decorator]
def _expert_input(  # type: ignore[no-untyped-def]
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
    shared,
    hidden,
    columns,
    R: tl.constexpr,  # noqa: N803
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
    SWAP: tl.constexpr,  # noqa: N803
    EVEN: tl.constexpr,  # noqa: N803
):
    program = tl.program_id(0)
    routes = tl.cdiv(rows, R)
    if program < routes:
        route_block(
            program, logits, bias, rows, experts, table, turns, real, counts, ids, weights, slots,
            cells, tiles, most, total, blocks, ticket, slot_count, R, True, SB, HEIGHT, REAL,
            K, KB, EB, SIGMOID, NORMALISE, GROUPS, GROUPS_KEPT, GROUP_BEST,
        )  # fmt: skip
    else:
        share(
            program - routes, normed, gate_up, shared, rows, hidden, columns,
            BM, BN, BK, SWAP, EVEN,
        )  # fmt: skip


@triton.jit  # type: ignore[untyped-decorator]
def _expert_activation(both, shared, columns, WIDTH: tl.constexpr):  # type: ignore[no-untyped-def]  # noqa: N803
    row = tl.program_id(0).to(tl.int64)
    column = tl.program_id(1) * WIDTH + tl.arange(0, WIDTH)
    exists = column < columns
    at = both + row * 2 * columns + column
    gates = tl.load(at, mask=exists, other=0.0).to(tl.float32)
    ups = tl.load(at + columns, mask=exists, other=0.0).to(tl.float32)
    result = gated(gates, ups).to(shared.dtype.element_ty)
    tl.store(shared + row * columns + column, result, mask=exists)
