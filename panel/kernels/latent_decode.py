"""Attention of a few tokens a sequence over its paged cache of latents.

All heads share the keys, and the values are a part of the keys, so a page is read once for all of
them. A sequence's keys are divided among a fixed number of programs, so that the launch does not
depend on data; those beyond its length end at once. Each leaves its result and the logarithm of its
weights' sum; a second launch adds them up and applies the values' up-projection. Where one program
has all keys of a sequence its result is final, and a library's product projects it. Bytes moved:
length * (latent + rope) * 2 a sequence in bf16, heads * latent * v * 2 once for each 16 rows, and
the parts' results, which stay in the L2 cache. Source: DeepSeek-AI, "DeepSeek-V2" (2024), section
2.1; Dao et al., "Flash-Decoding" (2023).
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
import triton
import triton.language as tl

from panel.kernels.latent_combine import combine


@dataclass(frozen=True, slots=True)
class Paging:
    """Where the keys of each sequence are."""

    table: torch.Tensor
    """Pages of each sequence in order, int32 [sequences, pages]; any that exists beyond its end."""
    lengths: torch.Tensor
    """Keys of each sequence, its last token of this step included, int32 [sequences]."""
    page_size: int


@dataclass(frozen=True, slots=True)
class Division:
    """How a launch is divided."""

    pieces: int
    """Programs among which a sequence's keys are divided."""
    keys: int
    """Keys read at a time, a power of two from 16; a piece has a multiple of them."""
    warps: int
    stages: int
    """2: one buffer of keys; 3: the next keys arrive while these are in use."""

    @classmethod
    def rule(cls, sequences: int, rows: int, size: int = 2, processors: int = 132) -> Division:
        """Return a division for sequences with `rows` queries each: tokens times heads.

        One program a multiprocessor; `size` is that of a number of the cache, in bytes.
        """
        pieces = processors // (sequences * -(-rows // _height(rows)))
        return cls(max(1, min(64, pieces)), 128 // size, warps=8, stages=3 if size <= 2 else 2)


def latent_decode_reference(
    query: torch.Tensor,
    cache: torch.Tensor,
    latent: int,
    paging: Paging,
    value_up: torch.Tensor | None,
) -> torch.Tensor:
    """Return [rows, heads * v], or [rows, heads * latent] without `value_up`, in float32.

    Shapes: query [sequences * width, heads, latent + rope], its softmax scale in it; cache
    [slots, latent + rope]; value_up [heads, latent, v] or None. Token j of a sequence's width sees
    the first length - width + 1 + j of its keys; one that sees none gives zeros.
    """
    width = query.shape[0] // paging.table.shape[0]
    results = []
    for row, queries in enumerate(query.float()):
        sequence, token = divmod(row, width)
        seen = max(int(paging.lengths[sequence]) - width + 1 + token, 0)
        key = torch.arange(seen, device=query.device)
        pages = paging.table[sequence, key // paging.page_size].long()
        keys = cache[pages * paging.page_size + key % paging.page_size].float()
        mixed = torch.softmax(queries @ keys.t(), dim=-1) @ keys[:, :latent]
        if value_up is not None:
            mixed = torch.einsum("hl,hlv->hv", mixed, value_up.float())
        results.append(mixed.flatten())
    return torch.stack(results)


def latent_decode(
    query: torch.Tensor,
    cache: torch.Tensor,
    latent: int,
    paging: Paging,
    value_up: torch.Tensor | None,
    *,
    division: Division | None = None,
    out: torch.Tensor | None = None,
) -> torch.Tensor:
    """Do what `latent_decode_reference` does, with a contiguous result of the query's type.

    `query` and `cache` may be strided but for their last dimension; either of value_up's last two
    is contiguous. Keys beyond a length are not read, whatever is there; a padding sequence has a
    length whose pages are its own or nobody's.
    """
    rows, heads, entry = query.shape
    sequences, pages = paging.table.shape
    width = rows // sequences
    division = division or Division.rule(sequences, width * heads, cache.element_size())
    pieces = division.pieces
    if out is None:
        columns = latent if value_up is None else value_up.shape[2]
        out = query.new_empty((rows, heads * columns))
    parts = (rows, heads, pieces, latent)
    if pieces > 1:
        sums = torch.empty(parts, dtype=torch.float32, device=query.device)
    else:
        sums = out.view(parts) if value_up is None else query.new_empty(parts)
    logs = torch.empty((rows, heads, pieces), dtype=torch.float32, device=query.device)
    height = _height(width * heads)
    _attend[(triton.cdiv(width * heads, height), pieces, sequences)](
        query,
        cache,
        paging.table,
        paging.lengths,
        sums,
        logs,
        width,
        heads,
        pages,
        latent,
        entry - latent,
        *query.stride()[:2],
        cache.stride(0),
        paging.table.stride(0),
        ROWS=height,
        KEYS=division.keys,
        LATENT=max(16, triton.next_power_of_2(latent)),
        ROPE=max(16, triton.next_power_of_2(entry - latent)),
        PAGE=paging.page_size,
        WHOLE=pieces == 1,
        STAGES=division.stages,
        num_warps=division.warps,
    )
    if pieces > 1:
        combine(sums, logs, value_up, out)
    elif value_up is not None:
        mixed = sums.view(rows, heads, latent).transpose(0, 1)
        torch.bmm(mixed, value_up, out=out.view(rows, heads, -1).transpose(0, 1))
    return out


def _height(rows: int) -> int:
    """Return the queries of one program, of `rows` that share keys."""
    return 16 if rows <= 16 else 32


@triton.jit(do_not_specialize=["pages"])  # type: ignore[untyped-decorator]
def _attend(  # type: ignore[no-untyped-def]
    query,
    cache,
    table,
    lengths,
    sums,
    logs,
    width,
    heads,
    pages,
    latent,
    rope,
    query_row,
    query_head,
    cache_row,
    table_row,
    ROWS: tl.constexpr,  # noqa: N803
    KEYS: tl.constexpr,  # noqa: N803
    LATENT: tl.constexpr,  # noqa: N803
    ROPE: tl.constexpr,  # noqa: N803
    PAGE: tl.constexpr,  # noqa: N803
    WHOLE: tl.constexpr,  # noqa: N803
    STAGES: tl.constexpr,  # noqa: N803
):
    attend_piece(
        tl.program_id(0), tl.program_id(1), tl.program_id(2).to(tl.int64), tl.num_programs(1),
        query, cache, table, lengths, sums, logs, width, heads, pages, latent, rope, query_row,
        query_head, cache_row, table_row, ROWS, KEYS, LATENT, ROPE, PAGE, WHOLE, STAGES,
    )  # fmt: skip


@triton.jit  # type: ignore[untyped-decorator]
def attend_piece(  # type: ignore[no-untyped-def]
    block,
    piece,
    sequence,
    pieces,
    query,
    cache,
    table,
    lengths,
    sums,
    logs,
    width,
    heads,
    pages,
    latent,
    rope,
    query_row,
    query_head,
    cache_row,
    table_row,
    ROWS: tl.constexpr,  # noqa: N803
    KEYS: tl.constexpr,  # noqa: N803
    LATENT: tl.constexpr,  # noqa: N803
    ROPE: tl.constexpr,  # noqa: N803
    PAGE: tl.constexpr,  # noqa: N803
    WHOLE: tl.constexpr,  # noqa: N803
    STAGES: tl.constexpr,  # noqa: N803
):
    """Write the result of one piece of a sequence's keys for a block of its queries."""
    length = tl.load(lengths + sequence)
    begin, end = 0, length
    if not WHOLE:
        part = tl.cdiv(tl.cdiv(length, pieces), KEYS) * KEYS
        begin = piece * part
        end = tl.minimum(begin + part, length)
    row = block * ROWS + tl.arange(0, ROWS)
    real = row < width * heads
    token, head = row // heads, row % heads
    number = sequence * width + token
    spot = (number * heads + head) * pieces + piece
    if (begin < end) | WHOLE:
        # Pages are looked up one step ahead, so that keys need not wait for them.
        mine = table + sequence * table_row
        key = begin + tl.arange(0, KEYS)
        page = tl.load(mine + tl.minimum(key // PAGE, pages - 1))
        seen = length - width + 1 + token
        at = query + number[:, None] * query_row + head[:, None] * query_head
        column, tail = tl.arange(0, LATENT), tl.arange(0, ROPE)
        inside = real[:, None] & (column[None, :] < latent)
        query_latent = tl.load(at + column[None, :], mask=inside, other=0.0)
        inside_tail = real[:, None] & (tail[None, :] < rope)
        query_rope = tl.load(at + latent + tail[None, :], mask=inside_tail, other=0.0)
        most = tl.full((ROWS,), float("-inf"), tl.float32)
        totals = tl.zeros((ROWS, KEYS), tl.float32)
        mixed = tl.zeros((ROWS, LATENT), tl.float32)
        for start in tl.range(begin, end, KEYS, num_stages=STAGES):
            key = start + tl.arange(0, KEYS)
            known = key < end
            source = cache + (page.to(tl.int64) * PAGE + key % PAGE)[:, None] * cache_row
            page = tl.load(mine + tl.minimum((key + KEYS) // PAGE, pages - 1))
            held = known[:, None] & (column[None, :] < latent)
            keys = tl.load(source + column[None, :], mask=held, other=0.0)
            held_tail = known[:, None] & (tail[None, :] < rope)
            key_rope = tl.load(source + latent + tail[None, :], mask=held_tail, other=0.0)
            scores = tl.dot(query_latent, tl.trans(keys), input_precision="ieee")
            scores = tl.dot(query_rope, tl.trans(key_rope), scores, input_precision="ieee")
            counts = known[None, :] & (key[None, :] < seen[:, None])
            scores = tl.where(counts, scores * 1.4426950408889634, float("-inf"))
            higher = tl.maximum(most, tl.max(scores, axis=1))
            # A row that has seen no key yet: exp2(-inf - -inf) would be NaN.
            base = tl.where(higher == float("-inf"), 0.0, higher)
            weights = tl.exp2(scores - base[:, None])
            kept = tl.exp2(most - base)
            totals = totals * kept[:, None] + weights
            mixed = mixed * kept[:, None]
            mixed = tl.dot(weights.to(keys.dtype), keys, mixed, input_precision="ieee")
            most = higher
        total = tl.sum(totals, axis=1)
        divisor = tl.where(total == 0.0, 1.0, total)
        result = (mixed / divisor[:, None]).to(sums.dtype.element_ty)
        tl.store(sums + spot[:, None] * latent + column[None, :], result, mask=inside)
        if not WHOLE:
            tl.store(logs + spot, most + tl.log2(divisor), mask=real)
    else:
        tl.store(logs + spot, float("-inf"), mask=real)
