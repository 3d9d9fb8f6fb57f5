"""Replicas of experts take turns in the kernels as everywhere else, in Triton's interpreter."""

from __future__ import annotations

from tests.kernels import interpreting  # noqa: F401

# isort: split

import pytest
import torch

from panel.kernels.expert_route import Choice, route
from panel.kernels.grouping import Groups
from panel.kernels.router import Routing
from panel.server.cuda.mixture import with_table
from panel.server.parallel import Shard
from panel.server.placement import Placement
from tests.kernels.test_experts import Shape, weights_of

ROUTING = Routing(8, 3)
BEFORE = [0, 1, 2, 3, 0, 4, 5, 6, 7, 0, 1, 2]
AFTER = [7, 6, 5, 4, 3, 2, 1, 0, 7, 7, 7, 6]


@pytest.mark.parametrize("rank", [0, 1])
@pytest.mark.parametrize("experts", [BEFORE, list(range(8))], ids=["replicas", "no replicas"])
def test_rows_go_where_the_placement_says(rank: int, experts: list[int]) -> None:
    placement = Placement.of(experts, Shard(rank, 2, ep_size=2), 8, None)
    slots = len(experts) // 2
    weights = weights_of(ROUTING, Shape(slots=slots), torch.float32)
    logits = torch.randn(13, 8)
    for moved in (experts, AFTER if len(experts) > 8 else experts[::-1]):
        placement.move(moved)
        groups = Groups.of(13, ROUTING, slots, "cpu")
        table = with_table(weights, placement, 13).table
        route(Choice(logits, ROUTING, groups, slots, 16, table=table))
        chosen = torch.zeros(13, 8).scatter_(1, groups.ids.long(), groups.weights)
        ours = torch.zeros(13, slots + 1).scatter_(
            1, groups.slots.long() % (slots + 1), groups.weights
        )
        assert torch.equal(ours[:, :slots], placement.local(chosen))
