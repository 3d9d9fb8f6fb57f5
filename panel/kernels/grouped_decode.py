"""Attention of a few tokens a sequence over its paged cache of keys and values, by groups of heads.

A program reads a part of one sequence's keys for the query heads that share one cached head; as in
`latent_decode` the number of programs follows from shapes alone, those beyond a sequence's length
end at once, and a second launch adds the parts up in a fixed order. Bytes moved: length * 2 * kv
heads * width * 2 a sequence in bf16. Source: Dao et al., "Flash-Decoding" (2023); Ainslie et al.,
"GQA" (2023).
"""

from __future__ import annotations

import torch
import triton
import triton.language as tl

from panel.kernels.latent_combine import combine
from panel.kernels.latent_decode import Division, Paging


def rule(
    sequences: int, groups: int, rows: int = 1, size: int = 2, processors: int = 132
) -> Division:
    """Return a division for sequences with `rows` queries for each group: tokens times heads.

    Two programs a multiprocessor, but one piece where there are nearly enough of them: a second
    launch for two pieces costs more than it saves. `size` is that of a number of the cache, in
    bytes. Measured on an H200 with 4 and 16 groups, from one sequence to 128 of 256 keys, and up to
    8 of 4096.
    """
    programs = sequences * groups * triton.cdiv(rows, _height(rows, size))
    single = programs >= 0.7 * processors
    pieces = 1 if single else min(64, 2 * processors // programs)
    if size > 2 or rows > 16:
        return Division(pieces, keys=128 // size, warps=8, stages=2)
    if single and programs <= processors:
        return Division(pieces, keys=128, warps=8, stages=2)
    return Division(pieces, keys=128 if 1 < pieces <= 8 else 64, warps=4, stages=2)


def grouped_decode_reference(
    query: torch.Tensor, cache: torch.Tensor, groups: int, paging: Paging, first: int = 0
) -> torch.Tensor:
    """Return [rows, heads * width] in float32.

    Shapes: query [sequences * tokens, heads, width], its softmax scale in it; cache [slots, 2 *
    groups * width], the keys of all groups before their values. Token j of a sequence's tokens sees
    the keys from `first` up to length - tokens + j; one that sees none gives zeros.
    """
    heads, width = query.shape[1:]
    tokens = query.shape[0] // paging.table.shape[0]
    results = []
    for row, queries in enumerate(query.float()):
        sequence, token = divmod(row, tokens)
        end = max(int(paging.lengths[sequence]) - tokens + 1 + token, first)
        key = torch.arange(first, end, device=query.device)
        pages = paging.table[sequence, key // paging.page_size].long()
        entries = cache[pages * paging.page_size + key % paging.page_size].float()
        keys, values = entries.view(-1, 2, groups, width).permute(1, 2, 0, 3)
        shared = queries.view(groups, heads // groups, width)
        weights = torch.softmax(shared @ keys.transpose(1, 2), dim=-1)
        results.append((weights @ values).flatten())
    return torch.stack(results)


def grouped_decode(
    query: torch.Tensor,
    cache: torch.Tensor,
    groups: int,
    paging: Paging,
    first: int = 0,
    *,
    division: Division | None = None,
) -> torch.Tensor:
    """Do what `grouped_decode_reference` does, with a contiguous result of the query's type.

    `query` and `cache` may be strided but for their last dimension. Keys outside of what is seen
    are not read, whatever is there.
    """
    rows, heads, width = query.shape
    sequences, pages = paging.table.shape
    tokens, share = rows // sequences, heads // groups
    division = division or rule(sequences, groups, tokens * share, cache.element_size())
    pieces = division.pieces
    out = query.new_empty((rows, heads * width))
    parts = (rows, heads, pieces, width)
    sums = out.view(parts) if pieces == 1 else query.new_empty(parts, dtype=torch.float32)
    logs = query.new_empty((rows, heads, pieces), dtype=torch.float32)
    height = _height(tokens * share, cache.element_size())
    _attend_groups[(groups * triton.cdiv(tokens * share, height), pieces, sequences)](
        query,
        cache,
        paging.table,
        paging.lengths,
        sums,
        logs,
        tokens,
        groups,
        share,
        pages,
        width,
        *query.stride()[:2],
        cache.stride(0),
        paging.table.stride(0),
        FIRST=first,
        ROWS=height,
        KEYS=division.keys,
        WIDTH=max(16, triton.next_power_of_2(width)),
        PAGE=paging.page_size,
        WHOLE=pieces == 1,
        STAGES=division.stages,
        num_warps=division.warps,
    )
    if pieces > 1:
        combine(sums, logs, None, out)
    return out


def _height(rows: int, size: int) -> int:
    """Return the queries of one program, of `rows` that share keys: what registers can hold."""
    return 16 if rows <= 16 or size > 2 else 32


@triton.jit(do_not_specialize=["pages"], do_not_specialize_on_alignment=["lengths"])  # type: ignore[untyped-decorator]
def _attend_groups(  # type: ignore[no-untyped-def]
    query,
    cache,
    table,
    lengths,
    sums,
    logs,
    tokens,
    groups,
    share,
    pages,
    width,
    query_row,
    query_head,
    cache_row,
    table_row,
    FIRST: tl.constexpr,  # noqa: N803
    ROWS: tl.constexpr,  # noqa: N803
    KEYS: tl.constexpr,  # noqa: N803
    WIDTH: tl.constexpr,  # noqa: N803
    PAGE: tl.constexpr,  # noqa: N803
    WHOLE: tl.constexpr,  # noqa: N803
    STAGES: tl.constexpr,  # noqa: N803
):
    # Blocks of the same keys lie side by side.
    blocks = tl.cdiv(tokens * share, ROWS)
    group, block = tl.program_id(0) // blocks, tl.program_id(0) % blocks
    piece, pieces = tl.program_id(1), tl.num_programs(1)
    sequence = tl.program_id(2).to(tl.int64)
    length = tl.load(lengths + sequence)
    begin, end = 0, length
    if not WHOLE:
        part = tl.cdiv(tl.cdiv(length, pieces), KEYS) * KEYS
        begin = piece * part
        end = tl.minimum(begin + part, length)
    row = block * ROWS + tl.arange(0, ROWS)
    real = row < tokens * share
    token, head = row // share, group * share + row % share
    number = sequence * tokens + token
    spot = (number * groups * share + head) * pieces + piece
    if (begin < end) | WHOLE:
        mine = table + sequence * table_row
        column = tl.arange(0, WIDTH)
        inside = real[:, None] & (column[None, :] < width)
        at = query + number[:, None] * query_row + head[:, None] * query_head
        queries = tl.load(at + column[None, :], mask=inside, other=0.0)
        seen = length - tokens + 1 + token
        most = tl.full((ROWS,), float("-inf"), tl.float32)
        totals = tl.zeros((ROWS, KEYS), tl.float32)
        mixed = tl.zeros((ROWS, WIDTH), tl.float32)
        for start in tl.range(begin, end, KEYS, num_stages=STAGES):
            key = start + tl.arange(0, KEYS)
            known = (key >= FIRST) & (key < end)
            page = tl.load(mine + tl.minimum(key // PAGE, pages - 1))
            slot = page.to(tl.int64) * PAGE + key % PAGE
            source = cache + slot[:, None] * cache_row + group * width + column[None, :]
            held = known[:, None] & (column[None, :] < width)
            keys = tl.load(source, mask=held, other=0.0)
            values = tl.load(source + groups * width, mask=held, other=0.0)
            scores = tl.dot(queries, tl.trans(keys), input_precision="ieee")
            counts = known[None, :] & (key[None, :] < seen[:, None])
            scores = tl.where(counts, scores * 1.4426950408889634, float("-inf"))
            higher = tl.maximum(most, tl.max(scores, axis=1))
            # A row that has seen no key yet: exp2(-inf - -inf) would be NaN.
            base = tl.where(higher == float("-inf"), 0.0, higher)
            weights = tl.exp2(scores - base[:, None])
            kept = tl.exp2(most - base)
            totals = totals * kept[:, None] + weights
            mixed = mixed * kept[:, None]
            mixed = tl.dot(weights.to(values.dtype), values, mixed, input_precision="ieee")
            most = higher
        total = tl.sum(totals, axis=1)
        divisor = tl.where(total == 0.0, 1.0, total)
        result = (mixed / divisor[:, None]).to(sums.dtype.element_ty)
        tl.store(sums + spot[:, None] * width + column[None, :], result, mask=inside)
        if not WHOLE:
            tl.store(logs + spot, most + tl.log2(divisor), mask=real)
    else:
        tl.store(logs + spot, float("-inf"), mask=real)
