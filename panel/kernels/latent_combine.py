"""The second launch of `latent_decode`: results of the pieces added up, and values projected.

One program makes a block of columns of one head of one row, or of 16 rows where there are many, so
that the up-projection is read once for them. Bytes moved: heads * latent * v * 2 in bf16 for the
weights (2 MB for 16 heads), and latent * 4 for each piece, row and head, from the L2 cache.
"""

from __future__ import annotations

import torch
import triton
import triton.language as tl

from panel.kernels.arrivals import await_others

_FEW_ROWS = 4
"""Up to these, a program for each row; beyond, weights would be read too often."""


def combine(
    sums: torch.Tensor, logs: torch.Tensor, value_up: torch.Tensor | None, out: torch.Tensor
) -> None:
    """Fill `out`, [rows, heads * v], or [rows, heads * latent] without `value_up`.

    Shapes: sums [rows, heads, pieces, latent] and logs [rows, heads, pieces], float32, at most 64
    pieces: a piece's weighted mean and the binary logarithm of its weights' sum; value_up [heads,
    latent, v]. Pieces whose logarithm is -inf are not read; only others of those may follow them.
    """
    rows, heads, pieces, latent = sums.shape
    columns = latent if value_up is None else value_up.shape[2]
    height = 1 if rows <= _FEW_ROWS or value_up is None else 16
    up = sums if value_up is None else value_up
    block = 512 if value_up is None else 16 if height == 1 else 32
    block = max(16, min(triton.next_power_of_2(columns), block))
    _combine[(triton.cdiv(columns, block), heads, triton.cdiv(rows, height))](
        sums,
        logs,
        up,
        out,
        rows,
        pieces,
        latent,
        columns,
        up.stride(0),
        up.stride(1),
        up.stride(2),
        out.stride(0),
        ROWS=height,
        PIECES=64,
        GROUP=16 if height == 1 else 2,
        LATENT=max(16, triton.next_power_of_2(latent)),
        COLUMNS=block,
        UP=value_up is not None,
        num_warps=8,
    )


@triton.jit(do_not_specialize=["rows", "pieces"])  # type: ignore[untyped-decorator]
def _combine(  # type: ignore[no-untyped-def]
    sums,
    logs,
    value_up,
    out,
    rows,
    pieces,
    latent,
    columns,
    up_head,
    up_row,
    up_column,
    out_row,
    ROWS: tl.constexpr,  # noqa: N803
    PIECES: tl.constexpr,  # noqa: N803
    GROUP: tl.constexpr,  # noqa: N803
    LATENT: tl.constexpr,  # noqa: N803
    COLUMNS: tl.constexpr,  # noqa: N803
    UP: tl.constexpr,  # noqa: N803
):
    combine_block(
        tl.program_id(0), tl.program_id(1), tl.program_id(2), tl.num_programs(1),
        sums, logs, value_up, out, rows, pieces, latent, columns, up_head, up_row, up_column,
        out_row, None, 0, ROWS, PIECES, GROUP, LATENT, COLUMNS, UP,
    )  # fmt: skip


@triton.jit  # type: ignore[untyped-decorator]
def combine_block(  # type: ignore[no-untyped-def]
    block,
    head,
    rows_block,
    heads,
    sums,
    logs,
    value_up,
    out,
    rows,
    pieces,
    latent,
    columns,
    up_head,
    up_row,
    up_column,
    out_row,
    counter,
    before,
    ROWS: tl.constexpr,  # noqa: N803
    PIECES: tl.constexpr,  # noqa: N803
    GROUP: tl.constexpr,  # noqa: N803
    LATENT: tl.constexpr,  # noqa: N803
    COLUMNS: tl.constexpr,  # noqa: N803
    UP: tl.constexpr,  # noqa: N803
):
    """Write a block of columns of one head of some rows.

    With a `counter` it waits for so many programs `before` to have arrived there.
    """
    row = rows_block * ROWS + tl.arange(0, ROWS)
    column = block * COLUMNS + tl.arange(0, COLUMNS)
    deep = tl.arange(0, LATENT)
    if UP:
        # They are on their way while the pieces are weighed.
        inside = (deep[:, None] < latent) & (column[None, :] < columns)
        up = value_up + head.to(tl.int64) * up_head
        at = up + deep[:, None] * up_row + column[None, :] * up_column
        weights = tl.load(at, mask=inside, other=0.0)
    if counter is not None:
        await_others(counter, before)

    real = row < rows
    spot = (row.to(tl.int64) * heads + head) * pieces
    piece = tl.arange(0, PIECES)
    known = (piece[None, :] < pieces) & real[:, None]
    log = tl.load(
        logs + spot[:, None] + piece[None, :],
        mask=known,
        other=float("-inf"),
        cache_modifier=".cg",
    )
    filled = tl.sum((log != float("-inf")).to(tl.int32), axis=1)
    most = tl.max(log, axis=1)
    base = tl.where(most == float("-inf"), 0.0, most)
    total = tl.sum(tl.exp2(log - base[:, None]), axis=1)
    share = tl.where(total == 0.0, 0.0, 1.0 / tl.where(total == 0.0, 1.0, total))
    if UP:
        mixed = _added(sums, logs, spot, filled, base, share, latent, deep, GROUP)
        if ROWS == 1:
            flat = tl.reshape(mixed, (LATENT, 1))
            result = tl.sum(flat * weights.to(tl.float32), axis=0)[None, :]
        else:
            result = tl.dot(mixed.to(weights.dtype), weights, input_precision="ieee")
    else:
        result = _added(sums, logs, spot, filled, base, share, latent, column, GROUP)
    to = out + row[:, None].to(tl.int64) * out_row + head * columns + column[None, :]
    inside = real[:, None] & (column[None, :] < columns)
    tl.store(to, result.to(out.dtype.element_ty), mask=inside)


@triton.jit  # type: ignore[untyped-decorator]
def _added(  # type: ignore[no-untyped-def]
    sums,
    logs,
    spot,
    filled,
    base,
    share,
    latent,
    column,
    GROUP: tl.constexpr,  # noqa: N803
):
    """Return columns of the latents of some rows, their pieces added up, `GROUP` at a time."""
    mixed = tl.zeros((spot.shape[0], column.shape[0]), tl.float32)
    for start in range(0, tl.max(filled, axis=0), GROUP):
        piece = start + tl.arange(0, GROUP)
        there = piece[None, :] < filled[:, None]
        at = spot[:, None] + piece[None, :]
        log = tl.load(logs + at, mask=there, other=float("-inf"), cache_modifier=".cg")
        weight = tl.exp2(log - base[:, None])
        held = there[:, :, None] & (column[None, None, :] < latent)
        source = sums + at[:, :, None] * latent + column[None, None, :]
        mean = tl.load(source, mask=held, other=0.0, cache_modifier=".cg")
        mixed += tl.sum(weight[:, :, None] * mean, axis=1)
    return mixed * share[:, None]
