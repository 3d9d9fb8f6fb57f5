"""Choice and grouping against their references, in Triton's interpreter."""

from __future__ import annotations

from tests.kernels import interpreting  # noqa: F401

# isort: split

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from panel.kernels import expert_route
from panel.kernels.expert_route import Choice, route
from panel.kernels.grouping import Groups, group_reference, most_tiles
from panel.kernels.router import Routing, choose_reference

ROUTINGS = [
    Routing(16, 6),
    Routing(20, 3, normalise=True),
    Routing(16, 4, sigmoid=True, normalise=True, groups=4, groups_kept=2, group_best=2),
    Routing(12, 2, groups=3, groups_kept=1, group_best=1),
]


@pytest.mark.parametrize("dtype", [torch.float32, torch.float16])
@pytest.mark.parametrize("biased", [False, True])
@pytest.mark.parametrize("routing", ROUTINGS)
def test_choice_with_ties(routing: Routing, biased: bool, dtype: torch.dtype) -> None:
    """Logits of few values: most choices are between equal ones."""
    logits = torch.randint(-2, 3, (30, routing.experts)).to(dtype)
    bias = torch.randint(0, 2, (routing.experts,)).float() if biased else None
    groups = Groups.of(30, routing, routing.experts, "cpu")
    route(Choice(logits, routing, groups, routing.experts, 16, bias=bias))
    ids, weights = choose_reference(logits, bias, routing)
    assert torch.equal(groups.ids, ids.int())
    assert torch.allclose(groups.weights, weights, atol=1e-6, rtol=1e-5)


def test_of_equal_scores_the_lowest_number_wins() -> None:
    ids, _ = choose_reference(torch.zeros(2, 8), None, Routing(8, 3))
    assert ids.tolist() == [[0, 1, 2]] * 2


@pytest.mark.parametrize("sorted_rows", [256, 0], ids=["one launch", "two"])
@settings(max_examples=8, deadline=None)
@given(data=st.data())
def test_pairs_are_sorted_and_cut(sorted_rows: int, data: st.DataObject) -> None:
    rows, experts, chosen = data.draw(st.integers(1, 40)), 10, data.draw(st.integers(1, 4))
    slots = data.draw(st.integers(1, 12))
    table = data.draw(st.lists(_table(experts, slots), min_size=1, max_size=3))
    seed = data.draw(st.integers(0, 999))
    logits = torch.randn(rows, experts, generator=torch.Generator().manual_seed(seed))
    routing, height = Routing(experts, chosen), data.draw(st.sampled_from([16, 32]))
    groups = Groups.of(rows, routing, slots, "cpu")
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(expert_route, "SORTED_ROWS", sorted_rows)
        places = torch.tensor(table, dtype=torch.int32)
        for _ in range(2):
            route(Choice(logits, routing, groups, slots, height, table=places))
    ids = choose_reference(logits, None, routing)[0].tolist()
    wanted = [[table[row % len(table)][expert] for expert in ids[row]] for row in range(rows)]
    cells, tiles = group_reference(wanted, height)
    assert groups.slots.tolist() == wanted
    assert groups.cells[: len(cells)].tolist() == cells
    assert list(zip(*groups.tiles[:, : groups.total].tolist(), strict=True)) == tiles
    assert groups.total <= most_tiles(rows, chosen, slots, height)


@st.composite
def _table(draw: st.DrawFn, experts: int, slots: int) -> list[int]:
    """Some experts have a slot, no slot has two experts."""
    order = draw(st.permutations(range(experts)))
    table = [-1] * experts
    for slot, expert in enumerate(order[: draw(st.integers(0, min(slots, experts)))]):
        table[expert] = slot
    return table
