"""The kernels' layout of a step against the batch of the plain computation."""

from __future__ import annotations

import pytest
import torch

from panel.server.batch import build_batch
from panel.server.cuda.layout import Paper, lay_out
from tests.server.plans import PAGE, steps

PAPER = Paper(PAGE, 512, 4)
CPU = torch.device("cpu")


CASES = [
    (None, None),
    *((owners, rank) for owners in ([0, 1, 1, 0], [3, 3, 3, 0]) for rank in range(4)),
]


@pytest.mark.parametrize(("owners", "rank"), CASES)
def test_a_rank_computes_its_own_rows_and_knows_where_they_go(
    owners: list[int] | None, rank: int | None
) -> None:
    for plan in steps(chunk=64, owners=owners):
        layout = lay_out(plan, PAPER, plan.width, rank)
        batch = build_batch(plan, PAGE, CPU, rank)
        assert layout.rows == batch.tokens.shape[0]
        real = torch.from_numpy(layout.arrays["real"])
        assert (
            real.tolist() == (torch.ones_like(real) if batch.real is None else batch.real).tolist()
        )
        for name in ("tokens", "positions", "slots"):
            found = torch.from_numpy(layout.arrays[name])[real]
            assert found.tolist() == getattr(batch, name)[real].tolist(), name
        if batch.logit_targets is None or rank is None:
            assert layout.targets is None
        else:
            assert layout.targets is not None
            assert layout.targets.tolist() == batch.logit_targets.tolist()
        if batch.logit_rows is not None:
            assert layout.wanted.tolist() == batch.logit_rows.tolist()
        else:
            assert layout.wanted.tolist() == list(range(len(plan.decoding) * plan.width))
