"""Sum over the GPUs of one host in one launch: each writes its part into memory of all others.

A part travels as lines of 8 bytes: 4 of data, 4 that say which sum of this row they belong to. A
line is stored and loaded whole, so whoever sees the right number has the data too: neither flags
nor fences nor a second meeting are needed, and plain stores suffice, which PCIe carries as well.
This is the protocol LL of NCCL, as one shot. Bytes moved over the links: 2 (ranks - 1) times the
part, out and in.

How often a row was summed is counted on the device, so that a captured graph may be replayed among
other launches, of other numbers of rows. Two sets of lines take turns, by that count: a rank that
writes into a set for the second time has had lines of every other rank in between, which were sent
after that rank had read the set. Rows know nothing of each other; only calls must come in the same
order on all ranks, in one stream.

A rank whose lines never come keeps the others in this kernel. They are not silent: their heartbeats
stop, which is what a hang is known by, and the death of a process ends the gang from outside. A
limit here could only turn a missing part into a wrong sum.
"""

from __future__ import annotations

import torch
import triton
import triton.language as tl

from panel.kernels.boxes import WORD, Boxes
from panel.kernels.norm import Norm, rms_norm_reference


def peer_sum_reference(
    parts: torch.Tensor, hidden: torch.Tensor, norm: Norm | None = None
) -> tuple[torch.Tensor, torch.Tensor | None]:
    """Return `hidden` plus the sum of `parts`, added in float32 and rounded once; and its norm.

    Shapes: parts [ranks, rows, width], hidden [rows, width].
    """
    total = torch.zeros_like(hidden, dtype=torch.float32)
    for part in parts:
        total += part.float()
    total = (total + hidden.float()).to(hidden.dtype)
    return total, None if norm is None else rms_norm_reference(total, *norm)


def peer_sum(
    part: torch.Tensor, hidden: torch.Tensor, boxes: Boxes, norm: Norm | None = None
) -> torch.Tensor:
    """Add the sum of all ranks' `part` to `hidden`; return its norm, without one `hidden`.

    Shapes: [rows, width] with at most `boxes.rows` rows, both contiguous; a row is whole words.
    All ranks add in the order of the ranks: their results are equal to the bit.
    """
    if not (part.is_contiguous() and hidden.is_contiguous()):
        raise ValueError("rows of a sum over peers must follow each other without a gap")
    rows, width = hidden.shape
    words = width * hidden.element_size() // WORD
    block = triton.next_power_of_2(words)
    normed = hidden if norm is None else torch.empty_like(hidden)
    gain, floor = (None, None) if norm is None else norm
    _peer_sum[(min(rows, boxes.programs),)](
        part.view(torch.int32),
        hidden.view(torch.int32),
        normed.view(torch.int32),
        None if gain is None else gain.view(torch.int32),
        floor,
        boxes.addresses,
        boxes.counts,
        rows,
        boxes.rows,
        boxes.rank,
        RANKS=boxes.addresses.shape[0],
        WORDS=words,
        BLOCK=block,
        TYPE=_TYPES[hidden.dtype],
        num_warps=min(16, max(1, block // 128)),
    )
    return normed


_TYPES = {torch.float32: tl.float32, torch.bfloat16: tl.bfloat16, torch.float16: tl.float16}


@triton.jit(do_not_specialize=["rows", "most", "rank"])  # type: ignore[untyped-decorator]
def _peer_sum(  # type: ignore[no-untyped-def]
    part,
    hidden,
    normed,
    gain,
    floor,
    addresses,
    counts,
    rows,
    most,
    rank,
    RANKS: tl.constexpr,  # noqa: N803
    WORDS: tl.constexpr,  # noqa: N803
    BLOCK: tl.constexpr,  # noqa: N803
    TYPE: tl.constexpr,  # noqa: N803
):
    word = tl.arange(0, BLOCK)
    inside = word < WORDS
    first, step = tl.program_id(0), tl.num_programs(0)
    # All rows are sent before the first is waited for: the others may take them in another order.
    for row in range(first, rows, step):
        count = tl.load(counts + row) + 1
        data = tl.load(part + row * WORDS + word, mask=inside, other=0)
        lines = (count.to(tl.int64) << 32) | (data.to(tl.int64) & 0xFFFFFFFF)
        place = _place(count, rank, row, most, RANKS, WORDS)
        for peer in tl.static_range(RANKS):
            if peer != rank:
                tl.store(_box(addresses, peer) + place + word, lines, mask=inside)
    # The compiler may not put off a store that somebody else waits for.
    tl.debug_barrier()
    box = _box(addresses, rank)
    for row in range(first, rows, step):
        at = row * WORDS + word
        count = tl.load(counts + row) + 1
        before = _values(tl.load(hidden + at, mask=inside, other=0), TYPE)
        total = tl.zeros_like(before)
        for peer in tl.static_range(RANKS):
            if peer == rank:
                data = tl.load(part + at, mask=inside, other=0)
            else:
                place = _place(count, peer, row, most, RANKS, WORDS)
                data = _await(box + place + word, count, inside)
            total += _values(data, TYPE)
        result = _words(total + before, TYPE)
        tl.store(hidden + at, result, mask=inside)
        if gain is not None:
            wide = _values(result, TYPE)
            least = tl.load(floor).to(tl.float32)
            scale = tl.rsqrt(tl.sum(wide * wide) + least * least)
            gains = _values(tl.load(gain + word, mask=inside, other=0), TYPE)
            tl.store(normed + at, _words(wide * scale * gains, TYPE), mask=inside)
        # Every warp has read the count: none passes `_await` without all.
        tl.store(counts + row, count)


@triton.jit
def _box(addresses, rank):  # type: ignore[no-untyped-def]
    """Return where the box of a rank begins."""
    return tl.load(addresses + rank).to(tl.pointer_type(tl.int64))


@triton.jit  # type: ignore[untyped-decorator]
def _place(  # type: ignore[no-untyped-def]
    count,
    sender,
    row,
    most,
    RANKS: tl.constexpr,  # noqa: N803
    WORDS: tl.constexpr,  # noqa: N803
):
    """Return where in a box the line of a sender's row begins, for its `count`th sum."""
    return (((count & 1) * RANKS + sender) * most + row).to(tl.int64) * WORDS


@triton.jit
def _await(lines, count, inside):  # type: ignore[no-untyped-def]
    """Return the data of lines once all of them have come."""
    line = tl.load(lines, mask=inside, other=0, volatile=True)
    while tl.sum((((line >> 32).to(tl.int32) != count) & inside).to(tl.int32)) > 0:
        line = tl.load(lines, mask=inside, other=0, volatile=True)
    return line.to(tl.int32)


@triton.jit  # type: ignore[untyped-decorator]
def _values(words, TYPE: tl.constexpr):  # type: ignore[no-untyped-def]  # noqa: N803
    """Return the numbers in words of 4 bytes as float32, [words] or [words, 2]."""
    if TYPE.primitive_bitwidth == 32:
        values = words.to(tl.float32, bitcast=True)
    else:
        low, high = words.to(tl.int16), (words >> 16).to(tl.int16)
        both = tl.join(low, high).to(TYPE, bitcast=True)
        values = both.to(tl.float32)
    return values


@triton.jit  # type: ignore[untyped-decorator]
def _words(values, TYPE: tl.constexpr):  # type: ignore[no-untyped-def]  # noqa: N803
    """Return float32 numbers, rounded, as `_values` found them."""
    if TYPE.primitive_bitwidth == 32:
        words = values.to(tl.int32, bitcast=True)
    else:
        low, high = tl.split(values.to(TYPE).to(tl.int16, bitcast=True))
        words = (high.to(tl.int32) << 16) | (low.to(tl.int32) & 0xFFFF)
    return words
