"""`latent_decode` of one sequence's few tokens in one launch: some programs attend, others combine.

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

QUERIES = 64
"""Most queries, tokens times heads: each has programs of its own that combine."""
ROWS = 16
"""Queries of one program that attends. With more its numbers would not fit into registers."""
LINE = 64
"""Bytes of a row of the up-projection that one program combines with."""


def latent_together(
    query: torch.Tensor,
    cache: torch.Tensor,
    latent: int,
    paging: Paging,
    value_up: torch.Tensor,
    counter: torch.Tensor,
    *,
    division: Division | None = None,
    columns: int | None = None,
    out: torch.Tensor | None = None,
) -> torch.Tensor:
    """Do what `latent_decode` does, for one sequence with at most `QUERIES` queries.

    `counter`, int32 [1], is 0: `latent_prepare` sets it.
    """
    width, heads, entry = query.shape
    (sequences, pages), queries = paging.table.shape, width * heads
    if sequences != 1 or queries > QUERIES:
        raise ValueError(
            f"latent_together: {sequences} sequences, {width} rows of {heads} heads; it takes one "
            f"sequence with {QUERIES} queries at most: call latent_decode"
        )
    blocks = triton.cdiv(queries, ROWS)
    division = division or Division.rule(blocks, ROWS, cache.element_size())
    columns = columns or LINE // value_up.element_size()
    pieces, wide = division.pieces, value_up.shape[2]
    up_blocks = triton.cdiv(wide, columns)
    if out is None:
        out = query.new_empty((width, heads * wide))
    sums = torch.empty((queries, pieces, latent), dtype=torch.float32, device=query.device)
    logs = torch.empty((queries, pieces), dtype=torch.float32, device=query.device)
    _together[(blocks * pieces + up_blocks * queries,)](
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
        up_blocks,
        width,
        heads,
        pages,
        latent,
        entry - latent,
        wide,
        *query.stride()[:2],
        cache.stride(0),
        out.stride(0),
        *value_up.stride(),
        MOST=pieces,
        ROWS=ROWS,
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
    blocks,
    up_blocks,
    width,
    heads,
    pages,
    latent,
    rope,
    wide,
    query_row,
    query_head,
    cache_row,
    out_row,
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
    program, attending = tl.program_id(0), blocks * MOST
    pieces = _pieces(lengths, MOST, KEYS)
    if program >= attending:
        mine = program - attending
        row = mine // up_blocks
        combine_block(
            mine % up_blocks, row % heads, row // heads, heads, sums, logs, value_up, out, width,
            pieces, latent, wide, up_head, up_row, up_column, out_row, counter, blocks * pieces,
            1, 64, 16, LATENT, COLUMNS, True,
        )  # fmt: skip
    elif program % MOST < pieces:
        attend_piece(
            program // MOST, program % MOST, tl.zeros((), tl.int64), pieces, query, cache, table,
            lengths, sums, logs, width, heads, pages, latent, rope, query_row, query_head,
            cache_row, 0, ROWS, KEYS, LATENT, ROPE, PAGE, False, STAGES,
        )  # fmt: skip
        arrive(counter)
