"""Rows packed for the ranks that have their experts, and results added back into their rows.

A line is what travels: a row, its experts' weights and their slots. A row is packed once for each
rank that has any of its experts, by rank and then by row, so that the order is the same always; how
many lines go to each rank is known on the device. Results come back in the places of their lines
and are added rank by rank in float32, rounded once. Bytes moved: a row read and a line written for
each rank it goes to; then a row of results read for each, and each row read and written once.
Source: the dispatch and combine of GShard (Lepikhin et al., 2020), a row once a rank as in DeepEP.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
import triton
import triton.language as tl


@dataclass(frozen=True, slots=True)
class Lines:
    """How a line lies in memory: the row, then weights float32, then slots int32."""

    hidden: int
    chosen: int
    dtype: torch.dtype

    def __post_init__(self) -> None:
        if self.hidden * self.dtype.itemsize % 4:
            raise ValueError(f"rows of {self.hidden} x {self.dtype} are no whole 32-bit words")

    @property
    def width(self) -> int:
        """Elements of a line, whole 16 bytes."""
        size = self.dtype.itemsize
        return -(-(self.hidden * size + 8 * self.chosen) // 16) * 16 // size

    def empty(self, count: int, device: torch.device) -> torch.Tensor:
        """Return room for so many lines, [count, width]."""
        return torch.empty(count, self.width, dtype=self.dtype, device=device)

    def words(self, lines: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor, int, int]:
        """Return lines as float32 and as int32, words of a line, and those before the weights."""
        size = self.dtype.itemsize
        views = lines.view(torch.float32), lines.view(torch.int32)
        return *views, self.width * size // 4, self.hidden * size // 4


@dataclass(frozen=True, slots=True)
class Places:
    """Where lines go: int32 [rows, ranks] among those for a rank, -1 for none; int64 [ranks]."""

    within: torch.Tensor
    counts: torch.Tensor


def places_reference(slots: torch.Tensor, ranks: int, each: int) -> list[torch.Tensor]:
    """Return the rows that go to each rank; slots [rows, chosen], of which a rank has `each`."""
    homes = torch.where(slots < 0, -1, slots // each)
    return [(homes == rank).any(1).nonzero().squeeze(1) for rank in range(ranks)]


def find_places(slots: torch.Tensor, ranks: int, each: int) -> Places:
    """Return where each row's lines go.

    Shapes: slots int32 [rows, chosen]: among those of all ranks, `each` a rank; -1 is nowhere.
    """
    rows, chosen = slots.shape
    within = torch.empty(rows, ranks, dtype=torch.int32, device=slots.device)
    counts = torch.empty(ranks, dtype=torch.int64, device=slots.device)
    _find_places[(ranks,)](slots, within, counts, rows, each, K=chosen, BLOCK=512, num_warps=4)
    return Places(within, counts)


def permute_reference(
    normed: torch.Tensor, slots: torch.Tensor, weights: torch.Tensor, sent: list[torch.Tensor]
) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
    """Return the rows, weights and slots of all lines in order, for `places_reference`."""
    order = torch.cat(sent)
    return normed[order], weights[order], slots[order]


def permute(
    normed: torch.Tensor,
    slots: torch.Tensor,
    weights: torch.Tensor,
    places: Places | None,
    lines: torch.Tensor,
) -> None:
    """Write the lines; without `places` one a row, in order, and then lines for nobody.

    Shapes: normed [rows, hidden]; slots int32 and weights float32 [rows, chosen]; lines [count,
    width] of `Lines`.
    """
    rows, hidden = normed.shape
    form = Lines(hidden, slots.shape[1], normed.dtype)
    block = triton.next_power_of_2(hidden)
    _permute[(lines.shape[0] if places is None else rows,)](
        normed,
        slots,
        weights,
        places and places.within,
        places and places.counts,
        lines,
        *form.words(lines),
        rows,
        hidden,
        form.width,
        K=form.chosen,
        KB=triton.next_power_of_2(form.chosen),
        RANKS=0 if places is None else places.counts.shape[0],
        BLOCK=block,
        num_warps=min(16, max(1, block // 512)),
    )


def unpermute_reference(
    answers: torch.Tensor, sent: list[torch.Tensor], residual: torch.Tensor
) -> torch.Tensor:
    """Return `residual` and the answers to all lines, added to their rows."""
    total = residual.float()
    pieces = answers.float().split([rows.shape[0] for rows in sent])
    for rows, piece in zip(sent, pieces, strict=True):
        total = total.index_add(0, rows, piece)
    return total.to(residual.dtype)


def unpermute(answers: torch.Tensor, places: Places | None, ranks: int, out: torch.Tensor) -> None:
    """Add the answers to `out` [rows, hidden].

    Shapes: answers [lines, hidden], in the lines' places. Without `places` as many from each of the
    `ranks`, row by row, at least as many as there are rows.
    """
    rows, hidden = out.shape
    width = min(1024, int(triton.next_power_of_2(hidden)))
    _unpermute[(rows, triton.cdiv(hidden, width))](
        answers,
        places and places.within,
        places and places.counts,
        out,
        answers.shape[0] // ranks,
        hidden,
        out.stride(0),
        RANKS=ranks,
        WIDTH=width,
        num_warps=2,
    )


@triton.jit(do_not_specialize=["rows"])  # type: ignore[untyped-decorator]
def _find_places(  # type: ignore[no-untyped-def]
    slots,
    within,
    counts,
    rows,
    each,
    K: tl.constexpr,  # noqa: N803
    BLOCK: tl.constexpr,  # noqa: N803
):
    rank, ranks = tl.program_id(0), tl.num_programs(0)
    count = tl.zeros([], dtype=tl.int32)
    for begin in range(0, rows, BLOCK):
        row = begin + tl.arange(0, BLOCK)
        wanted = tl.zeros([BLOCK], dtype=tl.int32)
        for turn in tl.static_range(K):
            slot = tl.load(slots + row * K + turn, mask=row < rows, other=-1)
            wanted = tl.where((slot >= 0) & (slot // each == rank), 1, wanted)
        place = count + tl.cumsum(wanted, axis=0) - wanted
        tl.store(within + row * ranks + rank, tl.where(wanted == 1, place, -1), mask=row < rows)
        count += tl.sum(wanted, axis=0)
    tl.store(counts + rank, count.to(tl.int64))


@triton.jit(do_not_specialize=["rows"])  # type: ignore[untyped-decorator]
def _permute(  # type: ignore[no-untyped-def]
    normed,
    slots,
    weights,
    within,
    counts,
    lines,
    floats,
    ints,
    words,
    before,
    rows,
    hidden,
    width,
    K: tl.constexpr,  # noqa: N803
    KB: tl.constexpr,  # noqa: N803
    RANKS: tl.constexpr,  # noqa: N803
    BLOCK: tl.constexpr,  # noqa: N803
):
    row = tl.program_id(0).to(tl.int64)
    column, turn = tl.arange(0, BLOCK), tl.arange(0, KB)
    here = (row < rows) & (turn < K)
    values = tl.load(normed + row * hidden + column, mask=(row < rows) & (column < hidden), other=0)
    slot = tl.load(slots + row * K + turn, mask=here, other=-1)
    weight = tl.load(weights + row * K + turn, mask=here, other=0.0)
    if within is None:
        tl.store(lines + row * width + column, values, mask=column < hidden)
        tl.store(floats + row * words + before + turn, weight, mask=turn < K)
        tl.store(ints + row * words + before + K + turn, slot, mask=turn < K)
    else:
        begin = tl.zeros([], dtype=tl.int64)
        for rank in range(RANKS):
            place = tl.load(within + row * RANKS + rank)
            if place >= 0:
                line = begin + place
                tl.store(lines + line * width + column, values, mask=column < hidden)
                tl.store(floats + line * words + before + turn, weight, mask=turn < K)
                tl.store(ints + line * words + before + K + turn, slot, mask=turn < K)
            begin += tl.load(counts + rank)


@triton.jit(do_not_specialize=["each"])  # type: ignore[untyped-decorator]
def _unpermute(  # type: ignore[no-untyped-def]
    answers,
    within,
    counts,
    out,
    each,
    hidden,
    out_stride,
    RANKS: tl.constexpr,  # noqa: N803
    WIDTH: tl.constexpr,  # noqa: N803
):
    row = tl.program_id(0).to(tl.int64)
    column = tl.program_id(1) * WIDTH + tl.arange(0, WIDTH)
    exists = column < hidden
    at = out + row * out_stride + column
    total = tl.load(at, mask=exists, other=0.0).to(tl.float32)
    begin = tl.zeros([], dtype=tl.int64)
    for rank in range(RANKS):
        place = row
        if within is not None:
            place = tl.load(within + row * RANKS + rank).to(tl.int64)
        answer = answers + (begin + place) * hidden + column
        total += tl.load(answer, mask=exists & (place >= 0), other=0.0).to(tl.float32)
        if within is not None:
            begin += tl.load(counts + rank)
        else:
            begin += each
    tl.store(at, total.to(out.dtype.element_ty), mask=exists)
