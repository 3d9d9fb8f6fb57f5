"""The least weight that top-k, top-p and min-p keep, found without sorting.

A positive float's bits are ordered as the float is, so that a weight up to 1 is a number of 30
bits. Each launch settles three of them: for 8 thresholds it counts or adds up the weights that are
not below, and the last program of a row keeps the greatest threshold that still holds enough. That
is exactly the k-th greatest weight, or the last one within the probability. Bytes moved: the
weights, vocabulary * 4 a row, in each of ten launches for top-k and ten for top-p. More thresholds
would need fewer launches, but arithmetic, not memory, would bound them.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
import triton
import triton.language as tl

from panel.kernels.arrivals import is_last

_BLOCK = 2048
_BITS = 3
_HIGHEST = 27
"""The lowest of the first three bits of 30."""


@dataclass(frozen=True, slots=True)
class Filters:
    """What each row keeps, on the device; None where no row filters so."""

    top_k: torch.Tensor | None = None
    """int32 [rows]; 0: all."""
    top_p: torch.Tensor | None = None
    """float32 [rows]; 1: all."""
    min_p: torch.Tensor | None = None
    """float32 [rows]; 0: all."""

    def search(self, weights: torch.Tensor, arrivals: torch.Tensor) -> torch.Tensor:
        """Return the least weight that each row keeps, float32 [rows].

        Weights are float32 [rows, vocabulary], from 0 to 1. Top-k comes first, then top-p and
        min-p, each on what the one before has left.
        """
        least = None
        if self.top_k is not None:
            least = _search(weights, self.top_k, None, arrivals, total=False)
        if self.top_p is not None:
            least = _search(weights, self.top_p, least, arrivals, total=True)
        if self.min_p is None:
            return weights.new_zeros(weights.shape[0]) if least is None else least
        return self.min_p if least is None else torch.maximum(least, self.min_p)


def filtered(weights: torch.Tensor, filters: Filters, row: int) -> torch.Tensor:
    """Return one row's weights, [vocabulary], with 0 for those that are not kept: by sorting."""
    weights = weights.clone()
    top_k = 0 if filters.top_k is None else int(filters.top_k[row])
    if 0 < top_k < len(weights):
        weights[weights < weights.sort(descending=True).values[top_k - 1]] = 0
    top_p = 1.0 if filters.top_p is None else float(filters.top_p[row])
    if top_p < 1:
        ordered = weights.sort(descending=True).values
        sums = ordered.double().cumsum(0)
        last = int(torch.searchsorted(sums, top_p * sums[-1]))
        weights[weights < ordered[min(last, len(ordered) - 1)]] = 0
    if filters.min_p is not None:
        weights[weights < filters.min_p[row]] = 0
    return weights


def _search(
    weights: torch.Tensor,
    limits: torch.Tensor,
    floors: torch.Tensor | None,
    arrivals: torch.Tensor,
    *,
    total: bool,
) -> torch.Tensor:
    """Return each row's greatest threshold that still holds `limits`, float32 [rows].

    A limit is a share of the weights not below `floors` where `total`, else a number of weights.
    """
    rows, vocabulary = weights.shape
    device = weights.device
    blocks = triton.cdiv(vocabulary, _BLOCK)
    held = torch.empty((rows, blocks, 1 << _BITS), dtype=torch.float32, device=device)
    bases = torch.empty(rows, dtype=torch.int32, device=device)
    targets = torch.empty(rows, dtype=torch.float64, device=device)
    least = torch.empty(rows, dtype=torch.float32, device=device)
    for shift in range(_HIGHEST, -1, -_BITS):
        _narrow[(blocks, rows)](
            weights,
            limits,
            limits if floors is None else floors,
            held,
            bases,
            targets,
            least,
            arrivals,
            vocabulary,
            shift,
            TOTAL=total,
            FLOORS=floors is not None,
            FIRST=shift == _HIGHEST,
            LAST=shift == 0,
            BLOCK=_BLOCK,
            CHUNK=512,
            WAYS=1 << _BITS,
            BLOCKS=triton.next_power_of_2(blocks),
            num_warps=4,
        )
    return least


@triton.jit  # type: ignore[untyped-decorator]
def _narrow(  # type: ignore[no-untyped-def]
    weights,
    limits,
    floors,
    held,
    bases,
    targets,
    least,
    arrivals,
    vocabulary,
    shift,
    TOTAL: tl.constexpr,  # noqa: N803
    FLOORS: tl.constexpr,  # noqa: N803
    FIRST: tl.constexpr,  # noqa: N803
    LAST: tl.constexpr,  # noqa: N803
    BLOCK: tl.constexpr,  # noqa: N803
    CHUNK: tl.constexpr,  # noqa: N803
    WAYS: tl.constexpr,  # noqa: N803
    BLOCKS: tl.constexpr,  # noqa: N803
):
    block, row = tl.program_id(0), tl.program_id(1).to(tl.int64)
    blocks = tl.num_programs(0)
    way = tl.arange(0, WAYS)
    limit = tl.load(limits + row)
    floor = 0.0
    if FLOORS:
        floor = tl.load(floors + row)
    base = 0
    if not FIRST:
        base = tl.load(bases + row)
    thresholds = base + (way << shift)
    sums = tl.zeros((WAYS, CHUNK), tl.float32)
    for start in range(0, BLOCK, CHUNK):
        column = block * BLOCK + start + tl.arange(0, CHUNK)
        values = tl.load(weights + row * vocabulary + column, mask=column < vocabulary, other=-1.0)
        values = tl.where((values < floor) & (values >= 0), 0.0, values)
        bits = values.to(tl.int32, bitcast=True)
        if not TOTAL:
            values = tl.full((CHUNK,), 1.0, tl.float32)
        sums += tl.where(bits[None, :] >= thresholds[:, None], values[None, :], 0.0)
    spot = (row * blocks + block) * WAYS + way
    tl.store(held + spot, tl.sum(sums, axis=1))
    if is_last(arrivals + row, blocks):
        number = tl.arange(0, BLOCKS)
        every = held + (row * blocks + number[:, None]) * WAYS + way[None, :]
        there = (number[:, None] < blocks) & (way[None, :] >= 0)
        found = tl.load(every, mask=there, other=0.0, cache_modifier=".cg")
        total = tl.sum(found.to(tl.float64), axis=0)
        if TOTAL:
            if FIRST:
                whole = tl.sum(tl.where(way == 0, total, 0.0), axis=0)
                target = limit.to(tl.float64) * whole
                tl.store(targets + row, target)
            else:
                target = tl.load(targets + row)
        else:
            some = (limit > 0) & (limit < vocabulary)
            target = tl.where(some, limit, vocabulary).to(tl.float64)
        enough = tl.sum((total >= target).to(tl.int32), axis=0)
        settled = base + (tl.maximum(enough - 1, 0) << shift)
        tl.store(bases + row, settled)
        if LAST:
            # 1.0, the greatest weight, is kept whatever the limit.
            kept = tl.minimum(settled, 0x3F800000).to(tl.float32, bitcast=True)
            if TOTAL:
                kept = tl.where(limit < 1, kept, floor)
            tl.store(least + row, kept)
