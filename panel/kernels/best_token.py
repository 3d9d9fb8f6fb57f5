"""The best token of each row of logits over a vocabulary of its own, in one launch.

Programs look at a block of columns each, and the last of a row takes the best of all. Bytes moved:
the logits, once.
"""

from __future__ import annotations

import torch
import triton
import triton.language as tl

from panel.kernels.arrivals import arrival_counts, is_last


def best_token_reference(logits: torch.Tensor, ids: torch.Tensor) -> torch.Tensor:
    """Return `ids` of the first of the greatest logits, int64 [rows]; a NaN counts as infinite.

    Shapes: logits [rows, columns], ids int64 [columns].
    """
    return ids[logits.float().nan_to_num(nan=float("inf")).argmax(1)]


def best_token(logits: torch.Tensor, ids: torch.Tensor, out: torch.Tensor) -> None:
    """Write what `best_token_reference` returns to `out`, which may be strided.

    The last dimension of `logits` is contiguous.
    """
    rows, columns = logits.shape
    block = 1024
    blocks = triton.cdiv(columns, block)
    peaks = torch.empty((rows, blocks), dtype=torch.float32, device=logits.device)
    places = torch.empty((rows, blocks), dtype=torch.int32, device=logits.device)
    _best_token[(blocks, rows)](
        logits,
        ids,
        peaks,
        places,
        out,
        arrival_counts(logits.device),
        columns,
        logits.stride(0),
        out.stride(0),
        BLOCK=block,
        BLOCKS=triton.next_power_of_2(blocks),
        num_warps=4,
    )


@triton.jit(do_not_specialize=["out_row"], do_not_specialize_on_alignment=["out"])  # type: ignore[untyped-decorator]
def _best_token(  # type: ignore[no-untyped-def]
    logits,
    ids,
    peaks,
    places,
    out,
    arrivals,
    columns,
    logits_row,
    out_row,
    BLOCK: tl.constexpr,  # noqa: N803
    BLOCKS: tl.constexpr,  # noqa: N803
):
    block, row = tl.program_id(0), tl.program_id(1).to(tl.int64)
    blocks = tl.num_programs(0)
    column = block * BLOCK + tl.arange(0, BLOCK)
    inside = column < columns
    values = tl.load(logits + row * logits_row + column, mask=inside, other=float("-inf"))
    values = values.to(tl.float32)
    values = tl.where(values != values, float("inf"), values)
    peak = tl.max(values, axis=0)
    tl.store(peaks + row * blocks + block, peak)
    first = tl.min(tl.where((values == peak) & inside, column, columns - 1), axis=0)
    tl.store(places + row * blocks + block, first)
    if is_last(arrivals + row, blocks):
        number = tl.arange(0, BLOCKS)
        there = number < blocks
        every = row * blocks + number
        tops = tl.load(peaks + every, mask=there, other=float("-inf"), cache_modifier=".cg")
        found = tl.load(places + every, mask=there, other=0, cache_modifier=".cg")
        best = (tops == tl.max(tops, axis=0)) & there
        # Blocks come in the order of their columns.
        place = tl.min(tl.where(best, found, columns - 1), axis=0)
        tl.store(out + row * out_row, tl.load(ids + place))
