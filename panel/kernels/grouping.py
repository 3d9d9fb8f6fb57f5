"""The pairs of rows and experts, sorted by expert and cut into tiles, without the host.

A stable counting sort of integers: the same pairs give the same tables always. A pair is a row and
a slot of this device; a row's choice that is not here (slot -1) is no pair. A pair's cell is
`row * chosen + turn`. Bytes moved: some tens a pair, so that these launches are bound by their
latency. Some rows are sorted in one launch, many in two: see `expert_route`.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
import triton

from panel.kernels.router import Routing


@dataclass(frozen=True, slots=True)
class Groups:
    """Tables on the device, filled by a route; all int32 but the weights."""

    ids: torch.Tensor
    """[rows, chosen]"""
    weights: torch.Tensor
    """float32 [rows, chosen]"""
    slots: torch.Tensor
    """[rows, chosen]: where the expert is; -1 where it is not here or the row is padding."""
    cells: torch.Tensor
    """[rows * chosen]: the pairs sorted by slot, then by row."""
    tiles: torch.Tensor
    """[3, most tiles]: slot, first pair, pair after the last."""
    total: torch.Tensor
    """[1]: the number of tiles."""
    blocks: torch.Tensor
    """[blocks of rows, slots]: pairs, then where they begin."""
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
            slots=ints(rows, routing.chosen),
            cells=ints(pairs),
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
) -> tuple[list[int], list[tuple[int, int, int]]]:
    """Return the cells of the sorted pairs, and the tiles."""
    pairs = sorted(
        (slot, row, turn)
        for row, choice in enumerate(slots)
        for turn, slot in enumerate(choice)
        if slot >= 0
    )
    tiles = []
    for slot in sorted({slot for slot, _, _ in pairs}):
        mine = [number for number, pair in enumerate(pairs) if pair[0] == slot]
        tiles += [
            (slot, first, min(first + height, mine[-1] + 1))
            for first in range(mine[0], mine[-1] + 1, height)
        ]
    return [row * len(slots[row]) + turn for _, row, turn in pairs], tiles
