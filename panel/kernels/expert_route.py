"""Choose experts and sort the pairs: what some programs of a launch do, and a launch of its own.

Each program chooses for a block of rows and counts their pairs; the last to arrive sums over the
blocks and cuts tiles. Of few rows it also sorts the pairs; of many the next launch does.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import torch
import triton
import triton.language as tl

from panel.kernels.arrivals import is_last
from panel.kernels.grouping import Groups
from panel.kernels.router import Routing, choose

SORTED_ROWS = 256
"""Most rows whose pairs the last program to arrive sorts."""
BLOCK, WIDE_BLOCK = 8, 32
"""Rows that a program chooses for, up to `SORTED_ROWS` and beyond."""


@dataclass(frozen=True, slots=True)
class Choice:
    """What the choice of experts reads and writes.

    Shapes: logits float32 [rows, experts]; bias [experts]; table int32 [experts] or [turns,
    experts]: the slot of an expert here, or -1, for the rows whose number modulo `turns` it is;
    real: rows that are no padding, bool [rows] or an int count [1]: padding is no pair; counts
    int64 [experts], increased by the real rows that chose each expert.
    """

    logits: torch.Tensor
    routing: Routing
    groups: Groups
    slots: int
    height: int
    """Most pairs of a tile."""
    bias: torch.Tensor | None = None
    table: torch.Tensor | None = None
    real: torch.Tensor | None = None
    counts: torch.Tensor | None = None

    @property
    def arguments(self) -> tuple[Any, ...]:
        """What `pick` and `route_block` take, from `logits` to `slot_count`."""
        table, real, groups = self.table, self.real, self.groups
        return (
            self.logits,
            self.bias,
            *self.logits.shape,
            table,
            1 if table is None or table.dim() == 1 else table.shape[0],
            real.view(torch.uint8) if real is not None and real.dtype == torch.bool else real,
            self.counts,
            groups.ids,
            groups.weights,
            groups.slots,
            groups.cells,
            groups.tiles,
            groups.tiles.shape[1],
            groups.total,
            groups.blocks,
            groups.ticket,
            self.slots,
        )

    @property
    def constants(self) -> dict[str, int | bool]:
        """The compile-time parameters of the same."""
        real = self.real
        return {
            "SB": max(16, int(triton.next_power_of_2(self.slots))),
            "HEIGHT": self.height,
            "REAL": 0 if real is None else 1 if real.dtype == torch.bool else 2,
            **self.routing.constants,
        }


COUNTS = ("rows", "turns", "most")
"""Arguments of which no kernel gets a variant for each kind of number."""


def route(choice: Choice) -> None:
    """Fill the groups, in one launch or in two."""
    rows, groups = choice.logits.shape[0], choice.groups
    sorting = rows <= SORTED_ROWS
    block = BLOCK if sorting else WIDE_BLOCK
    blocks = triton.cdiv(rows, block)
    constants = choice.constants
    _expert_route[(blocks,)](*choice.arguments, R=block, SORT=sorting, **constants, num_warps=4)
    if not sorting:
        _expert_scatter[(blocks,)](
            groups.slots,
            groups.cells,
            groups.blocks,
            rows,
            choice.slots,
            R=block,
            **{name: constants[name] for name in ("SB", "K", "KB")},
            num_warps=4,
        )


@triton.jit(do_not_specialize=COUNTS)  # type: ignore[untyped-decorator]
def _expert_route(  # type: ignore[no-untyped-def]
    logits,
    bias,
    rows,
    experts,
    table,
    turns,
    real,
    counts,
    ids,
    weights,
    slots,
    cells,
    tiles,
    most,
    total,
    blocks,
    ticket,
    slot_count,
    R: tl.constexpr,  # noqa: N803
    SORT: tl.constexpr,  # noqa: N803
    SB: tl.constexpr,  # noqa: N803
    HEIGHT: tl.constexpr,  # noqa: N803
    REAL: tl.constexpr,  # noqa: N803
    K: tl.constexpr,  # noqa: N803
    KB: tl.constexpr,  # noqa: N803
    EB: tl.constexpr,  # noqa: N803
    SIGMOID: tl.constexpr,  # noqa: N803
    NORMALISE: tl.constexpr,  # noqa: N803
    GROUPS: tl.constexpr,  # noqa: N803
    GROUPS_KEPT: tl.constexpr,  # noqa: N803
    GROUP_BEST: tl.constexpr,  # noqa: N803
):
    route_block(
        tl.program_id(0), logits, bias, rows, experts, table, turns, real, counts, ids, weights,
        slots, cells, tiles, most, total, blocks, ticket, slot_count, R, SORT, SB, HEIGHT, REAL,
        K, KB, EB, SIGMOID, NORMALISE, GROUPS, GROUPS_KEPT, GROUP_BEST,
    )  # fmt: skip


@triton.jit  # type: ignore[untyped-decorator]
def pick(  # type: ignore[no-untyped-def]
    row,
    logits,
    bias,
    rows,
    experts,
    table,
    turns,
    real,
    SB: tl.constexpr,  # noqa: N803
    REAL: tl.constexpr,  # noqa: N803
    K: tl.constexpr,  # noqa: N803
    KB: tl.constexpr,  # noqa: N803
    EB: tl.constexpr,  # noqa: N803
    SIGMOID: tl.constexpr,  # noqa: N803
    NORMALISE: tl.constexpr,  # noqa: N803
    GROUPS: tl.constexpr,  # noqa: N803
    GROUPS_KEPT: tl.constexpr,  # noqa: N803
    GROUP_BEST: tl.constexpr,  # noqa: N803
):
    """Return ids, weights and slots [R, KB], pairs in each slot [R, SB], choices [R, EB]."""
    here = row < rows
    turn = tl.arange(0, KB)[None, :]
    who, weight, taken = choose(
        logits, bias, row, here, experts,
        K, KB, EB, SIGMOID, NORMALISE, GROUPS, GROUPS_KEPT, GROUP_BEST,
    )  # fmt: skip
    counted = here
    if REAL == 1:
        counted = here & (tl.load(real + row, mask=here, other=0) != 0)
    if REAL == 2:
        counted = row < tl.minimum(tl.load(real), rows)
    taken = tl.where(counted[:, None], taken, 0)
    wanted = counted[:, None] & (turn < K)
    slot = who
    if table is not None:
        slot = tl.load(table + (row % turns)[:, None] * experts + who, mask=wanted, other=-1)
    slot = tl.where(wanted, slot, -1)
    members = taken if table is None and SB == EB else members_of(slot, SB, K, KB)
    return who, weight, slot, members, taken


@triton.jit  # type: ignore[untyped-decorator]
def route_block(  # type: ignore[no-untyped-def]
    block,
    logits,
    bias,
    rows,
    experts,
    table,
    turns,
    real,
    counts,
    ids,
    weights,
    slots,
    cells,
    tiles,
    most,
    total,
    blocks,
    ticket,
    slot_count,
    R: tl.constexpr,  # noqa: N803
    SORT: tl.constexpr,  # noqa: N803
    SB: tl.constexpr,  # noqa: N803
    HEIGHT: tl.constexpr,  # noqa: N803
    REAL: tl.constexpr,  # noqa: N803
    K: tl.constexpr,  # noqa: N803
    KB: tl.constexpr,  # noqa: N803
    EB: tl.constexpr,  # noqa: N803
    SIGMOID: tl.constexpr,  # noqa: N803
    NORMALISE: tl.constexpr,  # noqa: N803
    GROUPS: tl.constexpr,  # noqa: N803
    GROUPS_KEPT: tl.constexpr,  # noqa: N803
    GROUP_BEST: tl.constexpr,  # noqa: N803
):
    """Choose for the `R` rows of a block; the last block to arrive does what all have left."""
    row = block * R + tl.arange(0, R)
    who, weight, slot, members, taken = pick(
        row, logits, bias, rows, experts, table, turns, real, SB, REAL,
        K, KB, EB, SIGMOID, NORMALISE, GROUPS, GROUPS_KEPT, GROUP_BEST,
    )  # fmt: skip
    turn = tl.arange(0, KB)[None, :]
    cell = row[:, None] * K + turn
    inside = (row < rows)[:, None] & (turn < K)
    tl.store(ids + cell, who, mask=inside)
    tl.store(weights + cell, weight, mask=inside)
    tl.store(slots + cell, slot, mask=inside)
    at = tl.arange(0, SB)
    tl.store(blocks + block * slot_count + at, tl.sum(members, axis=0), mask=at < slot_count)
    if counts is not None:
        expert = tl.arange(0, EB)
        hits = tl.sum(taken, axis=0)
        tl.atomic_add(counts + expert, hits.to(tl.int64), mask=(hits > 0) & (expert < experts))
    number = tl.cdiv(rows, R)
    if is_last(ticket, number):
        count = _sums(blocks, number, slot_count, SB)
        first = tl.cumsum(count, axis=0) - count
        _cut(count, first, tiles, most, total, SB, HEIGHT)
        if SORT:
            for begin in range(0, rows, 32):
                mine = begin + tl.arange(0, 32)
                first += _place(mine, rows, slots, cells, first, 32, SB, K, KB)
        else:
            _begin(blocks, first, number, slot_count, SB)


@triton.jit  # type: ignore[untyped-decorator]
def members_of(slot, SB: tl.constexpr, K: tl.constexpr, KB: tl.constexpr):  # type: ignore[no-untyped-def]  # noqa: N803
    """Return whether each row has a pair in each slot, int32 [R, SB]."""
    every, turn = tl.arange(0, SB)[None, :], tl.arange(0, KB)[None, :]
    members = tl.zeros([slot.shape[0], SB], dtype=tl.int32)
    for number in range(K):
        mine = tl.max(tl.where(turn == number, slot, -1), axis=1)[:, None]
        members = tl.where(every == mine, 1, members)
    return members


@triton.jit  # type: ignore[untyped-decorator]
def _place(  # type: ignore[no-untyped-def]
    row,
    rows,
    slots,
    cells,
    first,
    R: tl.constexpr,  # noqa: N803
    SB: tl.constexpr,  # noqa: N803
    K: tl.constexpr,  # noqa: N803
    KB: tl.constexpr,  # noqa: N803
):
    """Sort the pairs of some rows, whose slots begin at `first`; return how many each slot has."""
    every, turn = tl.arange(0, SB)[None, :], tl.arange(0, KB)[None, :]
    cell = row[:, None] * K + turn
    inside = (row < rows)[:, None] & (turn < K)
    slot = tl.load(slots + cell, mask=inside, other=-1, cache_modifier=".cg")
    members = members_of(slot, SB, K, KB)
    spot = tl.cumsum(members, axis=0) - members + first[None, :]
    places = tl.full([R, KB], -1, tl.int32)
    for number in range(K):
        mine = tl.max(tl.where(turn == number, slot, -1), axis=1)[:, None]
        found = tl.max(tl.where(every == mine, spot, -1), axis=1)[:, None]
        places = tl.where(turn == number, found, places)
    tl.store(cells + places, cell, mask=places >= 0)
    return tl.sum(members, axis=0)


@triton.jit  # type: ignore[untyped-decorator]
def _cut(count, first, tiles, most, total, SB: tl.constexpr, HEIGHT: tl.constexpr):  # type: ignore[no-untyped-def]  # noqa: N803
    """Write the tiles of all slots, given each slot's pairs and where they begin."""
    needed = (count + HEIGHT - 1) // HEIGHT
    begin = tl.cumsum(needed, axis=0) - needed
    slot = tl.arange(0, SB)
    for number in range(tl.max(needed, axis=0)):
        has = number < needed
        start = first + number * HEIGHT
        tl.store(tiles + begin + number, slot, mask=has)
        tl.store(tiles + most + begin + number, start, mask=has)
        stop = tl.minimum(start + HEIGHT, first + count)
        tl.store(tiles + 2 * most + begin + number, stop, mask=has)
    tl.store(total, tl.sum(needed, axis=0))


@triton.jit  # type: ignore[untyped-decorator]
def _sums(blocks, count, slot_count, SB: tl.constexpr):  # type: ignore[no-untyped-def]  # noqa: N803
    """Return the pairs of each slot, int32 [SB]."""
    slot = tl.arange(0, SB)[None, :]
    total = tl.zeros([32, SB], dtype=tl.int32)
    for begin in range(0, count, 32):
        block = begin + tl.arange(0, 32)[:, None]
        inside = (block < count) & (slot < slot_count)
        at = blocks + block * slot_count + slot
        total += tl.load(at, mask=inside, other=0, cache_modifier=".cg")
    return tl.sum(total, axis=0)


@triton.jit  # type: ignore[untyped-decorator]
def _begin(blocks, first, count, slot_count, SB: tl.constexpr):  # type: ignore[no-untyped-def]  # noqa: N803
    """Replace the pairs of each block and slot by where they begin."""
    slot = tl.arange(0, SB)[None, :]
    for begin in range(0, count, 32):
        block = begin + tl.arange(0, 32)[:, None]
        inside = (block < count) & (slot < slot_count)
        at = blocks + block * slot_count + slot
        pairs = tl.load(at, mask=inside, other=0, cache_modifier=".cg")
        tl.store(at, tl.cumsum(pairs, axis=0) - pairs + first[None, :], mask=inside)
        first += tl.sum(pairs, axis=0)


@triton.jit(do_not_specialize=["rows"])  # type: ignore[untyped-decorator]
def _expert_scatter(  # type: ignore[no-untyped-def]
    slots,
    cells,
    blocks,
    rows,
    slot_count,
    R: tl.constexpr,  # noqa: N803
    SB: tl.constexpr,  # noqa: N803
    K: tl.constexpr,  # noqa: N803
    KB: tl.constexpr,  # noqa: N803
):
    at = tl.arange(0, SB)
    first = tl.load(blocks + tl.program_id(0) * slot_count + at, mask=at < slot_count, other=0)
    row = tl.program_id(0) * R + tl.arange(0, R)
    _place(row, rows, slots, cells, first, R, SB, K, KB)
