"""`latent_decode` of one token of one sequence in one launch: some programs attend, others combine.

Those that combine load their part of the values' up-projection and wait for those that attend,
which have lower numbers. The launch has programs for the most pieces; into how many of them the
keys are divided follows from their length, on the device. Bytes moved: as `latent_decode`.
"""

from __future__ import annotations

import torch
import triton
import triton.language as tl

from panel.kernels.arrivals import arrive
from panel.kernels.latent_combine import combine_block
from panel.kernels.latent_decode import Division, Paging, attend_piece

HEADS = 16
"""Most heads: one program attends for all of them."""
COLUMNS = 16
"""Columns of a head that one program combines."""
DIVISION = Division(pieces=64, keys=32, warps=8, stages=2)


def latent_together(
    query: torch.Tensor,
    cache: torch.Tensor,
    latent: int,
    paging: Paging,
    value_up: torch.Tensor,
    counter: torch.Tensor,
    *,
    division: Division = DIVISION,
    columns: int = COLUMNS,
    out: torch.Tensor | None = None,
) -> torch.Tensor:
    """Do what `latent_decode` does, for one row of at most 16 heads.

    `counter`, int32 [1], is 0: `latent_prepare` sets it. The pieces of `division` are a power of
    two, at most 64.
    """
    rows, heads, entry = query.shape
    pages, wide, pieces = paging.table.shape[1], value_up.shape[2], division.pieces
    if rows != 1 or heads > HEADS:
        raise ValueError(f"latent_together: {rows} rows of {heads} heads; 1 of {HEADS} at most")
    if out is None:
        out = query.new_empty((1, heads * wide))
    sums = torch.empty((heads, pieces, latent), dtype=torch.float32, device=query.device)
    logs = torch.empty((heads, pieces), dtype=torch.float32, device=query.device)
    blocks = triton.cdiv(wide, columns)
    _together[(pieces + blocks * heads,)](
        query,
        cache,
        paging.table,
        paging.lengths,
        sums,
        logs,
        value_up,
        out,
        counter,
        blocks,
        heads,
        pages,
        latent,
        entry - latent,
        wide,
        query.stride(1),
        cache.stride(0),
        *value_up.stride(),
        MOST=pieces,
        ROWS=HEADS,
        KEYS=division.keys,
        LATENT=max(16, triton.next_power_of_2(latent)),
        ROPE=max(16, triton.next_power_of_2(entry - latent)),
        PAGE=paging.page_size,
        STAGES=division.stages,
        COLUMNS=columns,
        num_warps=division.warps,
    )
    return out


@triton.jit  # type: ignore[untyped-decorator]
def _pieces(lengths, MOST: tl.constexpr, KEYS: tl.constexpr):  # type: ignore[no-untyped-def] # noqa: N803
    """Return into how many pieces the keys are divided, so that none is empty."""
    blocks = tl.maximum(tl.cdiv(tl.load(lengths), KEYS), 1)
    return tl.cdiv(blocks, tl.cdiv(blocks, MOST))


@triton.jit(do_not_specialize=["pages"])  # type: ignore[untyped-decorator]
def _together(  # type: ignore[no-untyped-def]
    query,
    cache,
    table,
    lengths,
    sums,
    logs,
    value_up,
    out,
    counter,
    up_blocks,
    heads,
    pages,
    latent,
    rope,
    wide,
    query_head,
    cache_row,
    up_head,
    up_row,
    up_column,
    MOST: tl.constexpr,  # noqa: N803
    ROWS: tl.constexpr,  # noqa: N803
    KEYS: tl.constexpr,  # noqa: N803
    LATENT: tl.constexpr,  # noqa: N803
    ROPE: tl.constexpr,  # noqa: N803
    PAGE: tl.constexpr,  # noqa: N803
    STAGES: tl.constexpr,  # noqa: N803
    COLUMNS: tl.constexpr,  # noqa: N803
):
    program = tl.program_id(0)
    pieces = _pieces(lengths, MOST, KEYS)
    if program < pieces:
        attend_piece(
            0, program, tl.zeros((), tl.int64), pieces, query, cache, table, lengths, sums, logs,
            1, heads, pages, latent, rope, 0, query_head, cache_row, 0,
            ROWS, KEYS, LATENT, ROPE, PAGE, False, STAGES,
        )  # fmt: skip
        arrive(counter)
    elif program >= MOST:
        mine = program - MOST
        combine_block(
            mine % up_blocks, mine // up_blocks, 0, heads, sums, logs, value_up, out, 1, pieces,
            latent, wide, up_head, up_row, up_column, 0, counter, pieces,
            1, MOST, 16, LATENT, COLUMNS, True,
        )  # fmt: skip
