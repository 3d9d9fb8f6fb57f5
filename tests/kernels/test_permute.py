"""Rows to other ranks and back, against the references, in Triton's interpreter."""

from __future__ import annotations

from tests.kernels import interpreting  # noqa: F401

# isort: split

import pytest
import torch

from panel.kernels.grouping import Groups, group_reference
from panel.kernels.permute import (
    Lines,
    find_places,
    permute,
    permute_reference,
    places_reference,
    unpermute,
    unpermute_reference,
)
from panel.kernels.received import unpack, unpack_reference
from panel.kernels.router import Routing

DTYPES = pytest.mark.parametrize("dtype", [torch.float32, torch.float16])
RANKS, EACH, CHOSEN = 3, 5, 4


def choices(rows: int) -> tuple[torch.Tensor, torch.Tensor]:
    """Return slots and weights [rows, chosen]; some rows are padding, some choices missing."""
    slots = torch.rand(rows, RANKS * EACH).argsort(dim=1)[:, :CHOSEN].to(torch.int32)
    slots[::5] = -1
    slots[1::4, 1] = -1
    slots[2::7] = slots[2::7] % EACH
    return slots, torch.rand(rows, CHOSEN)


@pytest.mark.parametrize(
    ("rows", "hidden", "dtype"),
    [
        (23, 72, torch.float32),
        (23, 72, torch.float16),
        (520, 16, torch.float16),
        (0, 64, torch.float32),
    ],
)
def test_each_row_goes_once_to_each_rank_that_has_experts_for_it_and_comes_back(
    rows: int, hidden: int, dtype: torch.dtype
) -> None:
    (slots, weights), normed = choices(rows), torch.randn(rows, hidden).to(dtype)
    sent = places_reference(slots, RANKS, EACH)
    places = find_places(slots, RANKS, EACH)
    assert places.counts.tolist() == [len(each) for each in sent]
    form = Lines(hidden, CHOSEN, dtype)
    lines = form.empty(sum(places.counts.tolist()), normed.device).fill_(float("nan"))
    permute(normed, slots, weights, places, lines)
    found = unpack_reference(form, lines, 0, RANKS * EACH)
    wanted = permute_reference(normed, slots, weights, sent)
    assert all(torch.equal(*pair) for pair in zip(found, (*wanted[:2], wanted[2]), strict=True))
    answers, residual = torch.randn(lines.shape[0], hidden).to(dtype), torch.randn_like(normed)
    out = residual.clone()
    unpermute(answers, places, RANKS, out)
    assert torch.equal(out, unpermute_reference(answers, sent, residual))


@DTYPES
def test_lines_for_everybody_in_the_order_of_the_rows(dtype: torch.dtype) -> None:
    rows, hidden, count = 6, 40, 8
    (slots, weights), normed = choices(rows), torch.randn(rows, hidden).to(dtype)
    form = Lines(hidden, CHOSEN, dtype)
    lines = form.empty(count, normed.device).fill_(float("nan"))
    permute(normed, slots, weights, None, lines)
    found, shares, places = unpack_reference(form, lines, 0, RANKS * EACH)
    assert torch.equal(found[:rows], normed)
    assert torch.equal(shares[:rows], weights)
    assert torch.equal(places[:rows], slots)
    assert (places[rows:] == -1).all()
    assert not found[rows:].any()
    answers, residual = torch.randn(RANKS * count, hidden).to(dtype), torch.randn_like(normed)
    out = residual.clone()
    unpermute(answers, None, RANKS, out)
    sent = [torch.arange(rows)] * RANKS
    mine = answers.unflatten(0, (RANKS, count))[:, :rows].flatten(0, 1)
    assert torch.equal(out, unpermute_reference(mine, sent, residual))


@DTYPES
@pytest.mark.parametrize(("rows", "height"), [(3, 16), (70, 32), (300, 16)])
def test_received_lines_are_sorted_by_expert(rows: int, height: int, dtype: torch.dtype) -> None:
    (slots, weights), normed = choices(rows), torch.randn(rows, 24).to(dtype)
    if rows == 300:
        slots[:, :2] = EACH  # Most pairs on one expert: more tiles than are written at once.
    form = Lines(24, CHOSEN, dtype)
    lines = form.empty(rows, normed.device)
    permute(normed, slots, weights, None, lines)
    groups = Groups.of(rows, Routing(RANKS * EACH, CHOSEN), RANKS * EACH, "cpu")
    taken = torch.full_like(normed, float("nan"))
    unpack(form, lines, EACH, EACH, height, taken, groups)
    wanted = unpack_reference(form, lines, EACH, EACH)
    assert torch.equal(taken, normed)
    assert torch.equal(groups.weights, wanted[1])
    assert torch.equal(groups.slots, wanted[2])
    cells, tiles = group_reference(groups.slots.tolist(), height)
    assert groups.cells[: len(cells)].tolist() == cells
    assert int(groups.total) == len(tiles)
    assert [tuple(tile) for tile in groups.tiles[:, : len(tiles)].t().tolist()] == tiles


def test_rows_that_are_no_whole_words_are_refused() -> None:
    with pytest.raises(ValueError, match="32-bit words"):
        Lines(7, 2, torch.float16)
