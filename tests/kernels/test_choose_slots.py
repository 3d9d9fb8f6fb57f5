"""The choice of experts among the slots of all ranks, in Triton's interpreter."""

from __future__ import annotations

from tests.kernels import interpreting  # noqa: F401

# isort: split

import pytest
import torch

from panel.kernels.choose_slots import Slots, choose_slots, choose_slots_reference
from panel.kernels.router import Routing
from panel.server.parallel import Shard
from panel.server.placement import Placement

TABLES = {"replicas": [0, 1, 2, 3, 0, 4, 5, 6, 7, 0, 1, 2], "plain": [4, 0, 1, 2, 3, 5, 7, 6]}


@pytest.mark.parametrize("rank", [0, 1])
@pytest.mark.parametrize("table", TABLES)
@pytest.mark.parametrize("biased", [False, True])
def test_rows_go_where_the_placement_says(rank: int, table: str, biased: bool) -> None:
    rows, routing = 13, Routing(8, 3, sigmoid=biased)
    placement = Placement.of(TABLES[table], Shard(rank, 2, ep_size=2, dispatching=True), 8, None)
    logits, real = torch.randn(rows, 8), torch.rand(rows) < 0.7
    bias = torch.randn(8) if biased else None
    places = Slots(placement.experts, placement.period, placement.turn)
    slots = torch.full((rows, 3), -7, dtype=torch.int32)
    weights, counts = torch.full((rows, 3), torch.nan), torch.zeros(8, dtype=torch.int64)
    choose_slots(logits, bias, routing, places, real, slots, weights, counts)
    wanted = choose_slots_reference(logits, bias, routing, places, real)
    assert torch.equal(slots, wanted[0])
    assert (slots[real] >= 0).all()
    torch.testing.assert_close(weights, wanted[1])
    assert torch.equal(counts, wanted[2])
    # The same by the engine's own table, in which a weight stands in its slot.
    chosen = torch.zeros(rows, 8)
    for row, (places_of, shares) in enumerate(zip(slots.tolist(), weights.tolist(), strict=True)):
        for slot, share in zip(places_of, shares, strict=True):
            if slot >= 0:
                chosen[row, placement.experts[slot]] = share
    ours = torch.zeros(rows, len(TABLES[table]) + 1)
    ours.scatter_(1, slots.long() % ours.shape[1], weights)
    assert torch.equal(ours[:, :-1], placement.everywhere(chosen))
