"""Lines that came from other ranks, made ready for this rank's experts.

Some programs of one launch lay rows one after the other as the experts' products take them; others,
one an expert, sort the pairs of rows and experts here by expert and cut them into tiles. The sort
is stable; each of its programs counts all pairs. Bytes moved: a line read, a row written; eight a
pair and expert, from the L2 cache.
"""

from __future__ import annotations

import torch
import triton
import triton.language as tl

from panel.kernels.grouping import Groups
from panel.kernels.permute import Lines


def unpack_reference(
    form: Lines, lines: torch.Tensor, first: int, count: int
) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
    """Return rows [lines, hidden], weights and slots [lines, chosen] for slots from `first` on."""
    floats, ints, _, before = form.words(lines)
    after = before + form.chosen
    slots = ints[:, after : after + form.chosen] - first
    elsewhere = (slots < 0) | (slots >= count)
    return lines[:, : form.hidden], floats[:, before:after], slots.masked_fill(elsewhere, -1)


def unpack(
    form: Lines,
    lines: torch.Tensor,
    first: int,
    count: int,
    height: int,
    normed: torch.Tensor,
    groups: Groups,
) -> None:
    """Write the lines' rows, and the groups of those that go to the `count` slots from `first` on.

    Shapes: lines [rows, width]; normed [rows, hidden], contiguous. Tiles have at most `height`
    pairs.
    """
    rows = lines.shape[0]
    _unpack[(count + rows,)](
        lines,
        *form.words(lines),
        rows,
        form.hidden,
        form.width,
        first,
        count,
        normed,
        groups.weights,
        groups.slots,
        groups.cells,
        groups.tiles,
        groups.tiles.shape[1],
        groups.total,
        K=form.chosen,
        KB=triton.next_power_of_2(form.chosen),
        SB=max(16, int(triton.next_power_of_2(count + 1))),
        HEIGHT=height,
        BLOCK=triton.next_power_of_2(form.hidden),
        num_warps=4,
    )


@triton.jit(do_not_specialize=["rows", "first", "most"])  # type: ignore[untyped-decorator]
def _unpack(  # type: ignore[no-untyped-def]
    lines,
    floats,
    ints,
    words,
    before,
    rows,
    hidden,
    width,
    first,
    count,
    normed,
    weights,
    slots,
    cells,
    tiles,
    most,
    total,
    K: tl.constexpr,  # noqa: N803
    KB: tl.constexpr,  # noqa: N803
    SB: tl.constexpr,  # noqa: N803
    HEIGHT: tl.constexpr,  # noqa: N803
    BLOCK: tl.constexpr,  # noqa: N803
):
    program = tl.program_id(0)
    if program < count:
        chosen = ints + before + K
        _sort(program, chosen, words, rows, first, count, cells, tiles, most, total, K, SB, HEIGHT)
    else:
        row = (program - count).to(tl.int64)
        column, turn = tl.arange(0, BLOCK), tl.arange(0, KB)
        values = tl.load(lines + row * width + column, mask=column < hidden, other=0)
        tl.store(normed + row * hidden + column, values, mask=column < hidden)
        at = row * words + before + turn
        weight = tl.load(floats + at, mask=turn < K, other=0.0)
        slot = _here(tl.load(ints + at + K, mask=turn < K, other=-1), first, count)
        tl.store(weights + row * K + turn, weight, mask=turn < K)
        tl.store(slots + row * K + turn, slot, mask=turn < K)


@triton.jit
def _here(slot, first, count):  # type: ignore[no-untyped-def]
    """Return slots of all ranks as those of this one; -1 for others."""
    slot -= first
    return tl.where((slot >= 0) & (slot < count), slot, -1)


@triton.jit  # type: ignore[untyped-decorator]
def _slots_of(pair, chosen, words, pairs, first, count, K: tl.constexpr):  # type: ignore[no-untyped-def]  # noqa: N803
    at = chosen + (pair // K).to(tl.int64) * words + pair % K
    return _here(tl.load(at, mask=pair < pairs, other=-1), first, count)


@triton.jit  # type: ignore[untyped-decorator]
def _sort(  # type: ignore[no-untyped-def]
    mine,
    chosen,
    words,
    rows,
    first,
    count,
    cells,
    tiles,
    most,
    total,
    K: tl.constexpr,  # noqa: N803
    SB: tl.constexpr,  # noqa: N803
    HEIGHT: tl.constexpr,  # noqa: N803
):
    """Write the cells and tiles of the slot `mine`; that of slot 0 also the number of all tiles."""
    every, pairs = tl.arange(0, SB), rows * K
    counts = tl.zeros([SB], dtype=tl.int32)
    for begin in range(0, pairs, 1024):
        pair = begin + tl.arange(0, 1024)
        slot = _slots_of(pair, chosen, words, pairs, first, count, K)
        # The last of the bins is nobody's.
        counts += tl.histogram(tl.where(slot < 0, SB - 1, slot), SB)
    counts = tl.where(every < SB - 1, counts, 0)
    needed = (counts + HEIGHT - 1) // HEIGHT
    start = tl.sum(tl.where(every < mine, counts, 0), axis=0)
    end = start + tl.sum(tl.where(every == mine, counts, 0), axis=0)
    tile = tiles + tl.sum(tl.where(every < mine, needed, 0), axis=0)
    tl.store(total, tl.sum(needed, axis=0), mask=mine == 0)
    for begin in range(start, end, 16 * HEIGHT):
        number = tl.arange(0, 16)
        pair = begin + number * HEIGHT
        at = tile + (begin - start) // HEIGHT + number
        tl.store(at, mine, mask=pair < end)
        tl.store(at + most, pair, mask=pair < end)
        tl.store(at + 2 * most, tl.minimum(pair + HEIGHT, end), mask=pair < end)
    spot = cells + start
    for begin in range(0, pairs, 1024):
        pair = begin + tl.arange(0, 1024)
        slot = _slots_of(pair, chosen, words, pairs, first, count, K)
        hit = tl.where(slot == mine, 1, 0)
        tl.store(spot + tl.cumsum(hit, axis=0) - hit, pair, mask=hit == 1)
        spot += tl.sum(hit, axis=0)
