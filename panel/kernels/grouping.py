"""The pairs of rows and experts, sorted by expert and cut into tiles, without the host.

A stable counting sort of integers: the same pairs give the same tables always. A pair is a row and
a slot of this device; a row's choice that is not here (slot -1) is no pair. Bytes moved: some
tens a pair, so that these launches are bound by their latency. Few rows are sorted by one program,
many by three steps: counts of blocks of rows, sums over the blocks by the last program to arrive,
places.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
import triton
import triton.language as tl

from panel.kernels.overlap import await_inputs, launch_options
from panel.kernels.router import Routing, choose


@dataclass(frozen=True, slots=True)
class Groups:
    """Tables on the device, filled by a route; all int32 but the weights."""

    ids: torch.Tensor
    """[rows, chosen]"""
    weights: torch.Tensor
    """float32 [rows, chosen]"""
    place: torch.Tensor
    """[rows, chosen]: where the pair is in the sorted ones; -1 where it is not here."""
    pair_row: torch.Tensor
    """[rows * chosen], sorted by slot, then by row."""
    pair_weight: torch.Tensor
    """float32 [rows * chosen]"""
    tiles: torch.Tensor
    """[3, most tiles]: slot, first pair, pair after the last."""
    total: torch.Tensor
    """[1]: the number of tiles."""
    blocks: torch.Tensor
    """[blocks of rows, slots]: pairs, then places."""
    ticket: torch.Tensor
    """[1]: programs that have arrived; 0 between launches."""

    @classmethod
    def of(cls, rows: int, routing: Routing, slots: int, device: torch.device | str) -> Groups:
        """Allocate for at most `rows` rows, for any height of tiles from 16 on."""

        def ints(*shape: int) -> torch.Tensor:
            return torch.zeros(shape, dtype=torch.int32, device=device)

        pairs = rows * routing.chosen
        return cls(
            ids=ints(rows, routing.chosen),
            weights=torch.zeros(rows, routing.chosen, device=device),
            place=ints(rows, routing.chosen),
            pair_row=ints(pairs),
            pair_weight=torch.zeros(pairs, device=device),
            tiles=ints(3, most_tiles(rows, routing.chosen, slots, 16)),
            total=ints(1),
            blocks=ints(triton.cdiv(rows, 8), slots),
            ticket=ints(1),
        )


def most_tiles(rows: int, chosen: int, slots: int, height: int) -> int:
    """Return how many tiles `rows` rows can need."""
    pairs = rows * chosen
    return min(pairs, pairs // height + min(slots, pairs))


def group_reference(
    slots: list[list[int]], height: int
) -> tuple[list[int], list[list[int]], list[tuple[int, int, int]]]:
    """Return the rows of the sorted pairs, each choice's place, and the tiles."""
    pairs = sorted(
        (slot, row, turn)
        for row, choice in enumerate(slots)
        for turn, slot in enumerate(choice)
        if slot >= 0
    )
    place = [[-1] * len(choice) for choice in slots]
    for number, (_, row, turn) in enumerate(pairs):
        place[row][turn] = number
    tiles = []
    for slot in sorted({slot for slot, _, _ in pairs}):
        mine = [number for number, pair in enumerate(pairs) if pair[0] == slot]
        tiles += [
            (slot, first, min(first + height, mine[-1] + 1))
            for first in range(mine[0], mine[-1] + 1, height)
        ]
    return [row for _, row, _ in pairs], place, tiles


def block_rows(rows: int, experts: int, slots: int) -> int:
    """Return the rows that one program chooses for: all, where they fit its registers."""
    width = slot_block(max(experts, slots))
    most = max(8, min(128, 8192 // width))
    return int(min(most, max(8, triton.next_power_of_2(rows)))) if rows <= most else min(most, 32)


def route(
    logits: torch.Tensor,
    bias: torch.Tensor | None,
    routing: Routing,
    groups: Groups,
    *,
    slots: int,
    height: int,
    table: torch.Tensor | None = None,
    real: torch.Tensor | None = None,
    counts: torch.Tensor | None = None,
) -> None:
    """Choose experts and fill `groups` with tiles of at most `height` pairs.

    Shapes: logits [rows, experts]; bias [experts]; table int32 [experts] or [turns, experts]: the
    local slot of an expert, or -1, for the rows whose number modulo `turns` it is; real: rows that
    are no padding, bool [rows] or an int count [1]: padding is no pair; counts int64 [experts],
    increased by the real rows that chose each expert.
    """
    rows, experts = logits.shape
    block = block_rows(rows, experts, slots)
    blocks = triton.cdiv(rows, block)
    _route[(blocks,)](
        logits,
        bias,
        rows,
        experts,
        *table_arguments(table, real, counts, groups),
        slots,
        R=block,
        SB=slot_block(slots),
        HEIGHT=height,
        ALONE=blocks == 1,
        BLOCKS=max(1, 4096 // slot_block(slots)),
        **real_kind(real),
        **routing.constants,
        num_warps=max(4, min(16, block * slot_block(max(experts, slots)) // 512)),
        **launch_options(logits.device),
    )
    if blocks > 1:
        _scatter[(blocks,)](
            groups.weights,
            groups.place,
            groups.pair_row,
            groups.pair_weight,
            groups.blocks,
            rows,
            slots,
            R=block,
            SB=slot_block(slots),
            K=routing.chosen,
            KB=triton.next_power_of_2(routing.chosen),
            num_warps=4,
            **launch_options(logits.device),
        )


def slot_block(slots: int) -> int:
    """Return the power of two that holds so many slots."""
    return max(16, int(triton.next_power_of_2(slots)))


def real_kind(real: torch.Tensor | None) -> dict[str, int]:
    """How the real rows are told: 0 all, 1 a mask, 2 a count."""
    return {"REAL": 0 if real is None else 1 if real.dtype == torch.bool else 2}


def table_arguments(
    table: torch.Tensor | None,
    real: torch.Tensor | None,
    counts: torch.Tensor | None,
    groups: Groups,
) -> tuple[torch.Tensor | int | None, ...]:
    """Return the arguments of `route_block` from `table` to `ticket`."""
    return (
        table,
        1 if table is None or table.dim() == 1 else table.shape[0],
        real.view(torch.uint8) if real is not None and real.dtype == torch.bool else real,
        counts,
        groups.ids,
        groups.weights,
        groups.place,
        groups.pair_row,
        groups.pair_weight,
        groups.tiles,
        groups.tiles.shape[1],
        groups.total,
        groups.blocks,
        groups.ticket,
    )


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
    place,
    pair_row,
    pair_weight,
    tiles,
    most,
    total,
    blocks,
    slots,
    R: tl.constexpr,  # noqa: N803
    SB: tl.constexpr,  # noqa: N803
    HEIGHT: tl.constexpr,  # noqa: N803
    ALONE: tl.constexpr,  # noqa: N803
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
    """Choose for `R` rows; sort their pairs at once where these are all rows, else count them."""
    row = block * R + tl.arange(0, R)
    here = row < rows
    who, weight, taken = choose(
        logits, bias, row, here, experts,
        K, KB, EB, SIGMOID, NORMALISE, GROUPS, GROUPS_KEPT, GROUP_BEST,
    )  # fmt: skip
    turn = tl.arange(0, KB)[None, :]
    cell = row[:, None] * K + turn
    inside = here[:, None] & (turn < K)
    tl.store(ids + cell, who, mask=inside)
    tl.store(weights + cell, weight, mask=inside)
    counted = here
    if REAL == 1:
        counted = here & (tl.load(real + row, mask=here, other=0) != 0)
    if REAL == 2:
        counted = row < tl.minimum(tl.load(real), rows)
    if counts is not None:
        expert = tl.arange(0, EB)
        hits = tl.sum(tl.where(counted[:, None], taken, 0), axis=0)
        tl.atomic_add(counts + expert, hits.to(tl.int64), mask=(hits > 0) & (expert < experts))
    wanted = inside & counted[:, None]
    slot = who
    if table is not None:
        slot = tl.load(table + (row % turns)[:, None] * experts + who, mask=wanted, other=-1)
    slot = tl.where(wanted, slot, -1)
    members = _members(slot, R, SB, K, KB)
    count = tl.sum(members, axis=0)
    if ALONE:
        first = tl.cumsum(count, axis=0) - count
        _places(
            members, first, slot, weight, row, inside, place, pair_row, pair_weight, R, SB, K, KB
        )
        _tiles(count, first, tiles, most, total, SB, HEIGHT)
    else:
        tl.store(place + cell, slot, mask=inside)
        at = tl.arange(0, SB)
        tl.store(blocks + block * slots + at, count, mask=at < slots)


@triton.jit  # type: ignore[untyped-decorator]
def _members(slot, R: tl.constexpr, SB: tl.constexpr, K: tl.constexpr, KB: tl.constexpr):  # type: ignore[no-untyped-def]  # noqa: N803
    """Return whether each row has a pair in each slot, int32 [R, SB]."""
    every, turn = tl.arange(0, SB)[None, :], tl.arange(0, KB)[None, :]
    members = tl.zeros([R, SB], dtype=tl.int32)
    for number in range(K):
        mine = tl.max(tl.where(turn == number, slot, -1), axis=1)[:, None]
        members = tl.where(every == mine, 1, members)
    return members


@triton.jit  # type: ignore[untyped-decorator]
def _places(  # type: ignore[no-untyped-def]
    members,
    first,
    slot,
    weight,
    row,
    inside,
    place,
    pair_row,
    pair_weight,
    R: tl.constexpr,  # noqa: N803
    SB: tl.constexpr,  # noqa: N803
    K: tl.constexpr,  # noqa: N803
    KB: tl.constexpr,  # noqa: N803
):
    """Write where each pair goes, given where its slot's pairs of these rows begin."""
    every, turn = tl.arange(0, SB)[None, :], tl.arange(0, KB)[None, :]
    spot = tl.cumsum(members, axis=0) - members + first[None, :]
    places = tl.full([R, KB], -1, tl.int32)
    for number in range(K):
        mine = tl.max(tl.where(turn == number, slot, -1), axis=1)[:, None]
        found = tl.max(tl.where(every == mine, spot, -1), axis=1)[:, None]
        places = tl.where(turn == number, found, places)
    tl.store(place + row[:, None] * K + turn, places, mask=inside)
    tl.store(pair_row + places, tl.broadcast_to(row[:, None], [R, KB]), mask=places >= 0)
    tl.store(pair_weight + places, weight, mask=places >= 0)


@triton.jit  # type: ignore[untyped-decorator]
def _tiles(count, first, tiles, most, total, SB: tl.constexpr, HEIGHT: tl.constexpr):  # type: ignore[no-untyped-def]  # noqa: N803
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


@triton.jit(do_not_specialize=["rows"])  # type: ignore[untyped-decorator]
def _route(  # type: ignore[no-untyped-def]
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
    place,
    pair_row,
    pair_weight,
    tiles,
    most,
    total,
    blocks,
    ticket,
    slots,
    R: tl.constexpr,  # noqa: N803
    SB: tl.constexpr,  # noqa: N803
    HEIGHT: tl.constexpr,  # noqa: N803
    ALONE: tl.constexpr,  # noqa: N803
    BLOCKS: tl.constexpr,  # noqa: N803
    REAL: tl.constexpr,  # noqa: N803
    K: tl.constexpr,  # noqa: N803
    KB: tl.constexpr,  # noqa: N803
    EB: tl.constexpr,  # noqa: N803
    SIGMOID: tl.constexpr,  # noqa: N803
    NORMALISE: tl.constexpr,  # noqa: N803
    GROUPS: tl.constexpr,  # noqa: N803
    GROUPS_KEPT: tl.constexpr,  # noqa: N803
    GROUP_BEST: tl.constexpr,  # noqa: N803
    OVERLAP: tl.constexpr,  # noqa: N803
):
    await_inputs(OVERLAP)
    route_block(
        tl.program_id(0), logits, bias, rows, experts, table, turns, real, counts, ids, weights,
        place, pair_row, pair_weight, tiles, most, total, blocks, slots, R, SB, HEIGHT, ALONE, REAL,
        K, KB, EB, SIGMOID, NORMALISE, GROUPS, GROUPS_KEPT, GROUP_BEST,
    )  # fmt: skip
    if not ALONE:
        tl.debug_barrier()
        if tl.atomic_add(ticket, 1, sem="acq_rel") == tl.num_programs(0) - 1:
            tl.store(ticket, 0)
            count = _sums(blocks, tl.num_programs(0), slots, SB, BLOCKS)
            first = tl.cumsum(count, axis=0) - count
            _begins(blocks, first, tl.num_programs(0), slots, SB, BLOCKS)
            _tiles(count, first, tiles, most, total, SB, HEIGHT)


@triton.jit  # type: ignore[untyped-decorator]
def _sums(blocks, count, slots, SB: tl.constexpr, BLOCKS: tl.constexpr):  # type: ignore[no-untyped-def]  # noqa: N803
    """Return the pairs of each slot, int32 [SB]."""
    slot = tl.arange(0, SB)[None, :]
    total = tl.zeros([BLOCKS, SB], dtype=tl.int32)
    for begin in range(0, count, BLOCKS):
        block = begin + tl.arange(0, BLOCKS)[:, None]
        inside = (block < count) & (slot < slots)
        total += tl.load(blocks + block * slots + slot, mask=inside, other=0)
    return tl.sum(total, axis=0)


@triton.jit  # type: ignore[untyped-decorator]
def _begins(blocks, first, count, slots, SB: tl.constexpr, BLOCKS: tl.constexpr):  # type: ignore[no-untyped-def]  # noqa: N803
    """Replace the pairs of each block and slot by the place of the first."""
    slot = tl.arange(0, SB)[None, :]
    for begin in range(0, count, BLOCKS):
        block = begin + tl.arange(0, BLOCKS)[:, None]
        inside = (block < count) & (slot < slots)
        pairs = tl.load(blocks + block * slots + slot, mask=inside, other=0)
        spot = tl.cumsum(pairs, axis=0) - pairs + first[None, :]
        tl.store(blocks + block * slots + slot, spot, mask=inside)
        first += tl.sum(pairs, axis=0)


@triton.jit(do_not_specialize=["rows"])  # type: ignore[untyped-decorator]
def _scatter(  # type: ignore[no-untyped-def]
    weights,
    place,
    pair_row,
    pair_weight,
    blocks,
    rows,
    slots,
    R: tl.constexpr,  # noqa: N803
    SB: tl.constexpr,  # noqa: N803
    K: tl.constexpr,  # noqa: N803
    KB: tl.constexpr,  # noqa: N803
    OVERLAP: tl.constexpr,  # noqa: N803
):
    await_inputs(OVERLAP)
    row = tl.program_id(0) * R + tl.arange(0, R)
    turn, at = tl.arange(0, KB)[None, :], tl.arange(0, SB)
    inside = (row < rows)[:, None] & (turn < K)
    slot = tl.load(place + row[:, None] * K + turn, mask=inside, other=-1)
    weight = tl.load(weights + row[:, None] * K + turn, mask=inside, other=0.0)
    first = tl.load(blocks + tl.program_id(0) * slots + at, mask=at < slots, other=0)
    _places(
        _members(slot, R, SB, K, KB), first, slot, weight, row, inside,
        place, pair_row, pair_weight, R, SB, K, KB,
    )  # fmt: skip
