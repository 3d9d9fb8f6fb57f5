"""Attention of a few tokens a sequence over its paged cache of latents.

All heads share the keys, and the values are a part of the keys, so a page is read once for all of
them. A sequence's keys are divided among a fixed number of programs, so that the launch does not
depend on data; those beyond its length end at once. Each leaves its result and the logarithm of its
weights' sum; a second launch adds them up and applies the values' up-projection. Bytes moved:
length * (latent + rope) * 2 a sequence in bf16, heads * latent * v * 2 once for each 16 rows, and
the parts' results, which stay in the L2 cache. Source: DeepSeek-AI, "DeepSeek-V2" (2024), section
2.1; Dao et al., "Flash-Decoding" (2023).
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
import triton
import triton.language as tl

from panel.kernels.latent_combine import combine, piece_keys
from panel.kernels.overlap import await_inputs, launch_options


@dataclass(frozen=True, slots=True)
class Paging:
    """Where the keys of each sequence are."""

    table: torch.Tensor
    """Pages of each sequence in order, int32 [sequences, pages]."""
    lengths: torch.Tensor
    """Keys of each sequence, its last token of this step included, int32 [sequences]."""
    page_size: int


@dataclass(frozen=True, slots=True)
class Division:
    """How a launch is divided."""

    pieces: int
    """Programs among which a sequence's keys are divided."""
    keys: int
    """Keys read at a time, a power of two from 16."""
    least: int
    """Keys that make up a piece at least, a multiple of `keys`: a piece's result costs traffic."""
    warps: int
    stages: int

    @classmethod
    def rule(cls, sequences: int, rows: int, processors: int = 132) -> Division:
        """Return a division for sequences with `rows` queries each: tokens times heads."""
        blocks = sequences * -(-rows // _height(rows))
        pieces = max(1, min(64, 2 * processors // blocks))
        least = 32 if blocks <= 4 else 128 if blocks <= 16 else 256
        return cls(pieces, 32, least, warps=4 if _height(rows) < 32 else 8, stages=2)


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
    """Do what `latent_decode_reference` does, with a result of the query's type.

    `query` and `cache` may be strided but for their last dimension; either of value_up's last two
    is contiguous. Keys beyond a length are not read, whatever is there; a padding sequence has a
    length whose pages are its own or nobody's.
    """
    rows, heads, entry = query.shape
    sequences = paging.table.shape[0]
    width = rows // sequences
    division = division or Division.rule(sequences, width * heads)
    sums = torch.empty(
        (rows, heads, division.pieces, latent), dtype=torch.float32, device=query.device
    )
    logs = torch.empty((rows, heads, division.pieces), dtype=torch.float32, device=query.device)
    height = _height(width * heads)
    grid = (triton.cdiv(width * heads, height), division.pieces, sequences)
    _attend[grid](
        query,
        cache,
        paging.table,
        paging.lengths,
        sums,
        logs,
        width,
        heads,
        division.least,
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
        STAGES=division.stages,
        num_warps=division.warps,
        **launch_options(query.device),
    )
    return combine(
        sums, logs, paging.lengths, division.keys, division.least, value_up, out, query.dtype
    )


def _height(rows: int) -> int:
    """Return the queries of one program, of `rows` that share keys."""
    return next((height for height in (16, 32) if rows <= height), 64)


@triton.jit  # type: ignore[untyped-decorator]
def _attend(  # type: ignore[no-untyped-def]
    query,
    cache,
    table,
    lengths,
    sums,
    logs,
    width,
    heads,
    least,
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
    STAGES: tl.constexpr,  # noqa: N803
    OVERLAP: tl.constexpr,  # noqa: N803
):
    await_inputs(OVERLAP)
    piece, sequence = tl.program_id(1), tl.program_id(2)
    pieces = tl.num_programs(1)
    length = tl.load(lengths + sequence)
    part = piece_keys(length, pieces, least, KEYS)
    begin = piece * part
    end = tl.minimum(begin + part, length)
    if begin < end:
        row = tl.program_id(0) * ROWS + tl.arange(0, ROWS)
        real = row < width * heads
        token, head = row // heads, row % heads
        number = sequence.to(tl.int64) * width + token
        seen = length - width + 1 + token
        at = query + number[:, None] * query_row + head[:, None] * query_head
        column, tail = tl.arange(0, LATENT), tl.arange(0, ROPE)
        inside = real[:, None] & (column[None, :] < latent)
        query_latent = tl.load(at + column[None, :], mask=inside, other=0.0)
        inside_tail = real[:, None] & (tail[None, :] < rope)
        query_rope = tl.load(at + latent + tail[None, :], mask=inside_tail, other=0.0)
        most = tl.full((ROWS,), float("-inf"), tl.float32)
        total = tl.zeros((ROWS,), tl.float32)
        mixed = tl.zeros((ROWS, LATENT), tl.float32)
        for start in tl.range(begin, end, KEYS, num_stages=STAGES):
            key = start + tl.arange(0, KEYS)
            known = key < end
            page = tl.load(table + sequence * table_row + key // PAGE, mask=known, other=0)
            source = cache + (page.to(tl.int64) * PAGE + key % PAGE)[:, None] * cache_row
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
            total = total * kept + tl.sum(weights, axis=1)
            mixed = mixed * kept[:, None]
            mixed = tl.dot(weights.to(keys.dtype), keys, mixed, input_precision="ieee")
            most = higher
        spot = (number * heads + head) * pieces + piece
        divisor = tl.where(total == 0.0, 1.0, total)
        to = sums + spot[:, None] * latent + column[None, :]
        tl.store(to, mixed / divisor[:, None], mask=inside)
        tl.store(logs + spot, most + tl.log2(divisor), mask=real)
