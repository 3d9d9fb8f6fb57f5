"""Whole steps of ranks that dispatch rows to experts by kernels, against transformers."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch
from torch.multiprocessing.spawn import spawn

from tests.kernels import interpreting  # noqa: F401

# isort: split
from panel.server.plan import encode_plan
from tests.kernels.dispatching import RANKS, Answer, work
from tests.kernels.test_stack import SMALL, TEXTS, wanted_rows
from tests.server.checkpoints import SHAPES, make_checkpoint
from tests.server.plans import PAGE, expected, steps


@pytest.mark.parametrize(
    ("name", "dp", "owners"),
    [("v3-low-rank-groups", True, [1, 0]), ("v3-tied", False, None)],
    ids=["each rank has its own", "both have all"],
)
def test_steps_of_every_kind_agree_with_the_reference(
    name: str, dp: bool, owners: list[int] | None, tmp_path: Path
) -> None:
    family, shape = SHAPES[name]
    reference = make_checkpoint(tmp_path, family, shape | SMALL)
    plans = steps(TEXTS, chunk=4, owners=owners)
    encoded = [encode_plan(plan) for plan in plans]
    spawn(work, (reference.folder, dp, encoded, PAGE), RANKS)
    ranks: list[list[Answer]] = [torch.load(reference.folder / f"rank{n}") for n in range(RANKS)]
    wanted = iter(expected(reference, TEXTS))
    for plan, *answers in zip(plans, *ranks, strict=True):
        if plan.logit_begins:
            rows = wanted_rows(plan)
            torch.testing.assert_close(joined(answers)[rows], next(wanted), atol=1e-4, rtol=0)


def joined(answers: list[Answer]) -> torch.Tensor:
    """Return the logits of all ranks, their own rows or their columns."""
    if any(targets is None for _, targets in answers):
        return torch.cat([logits for logits, _ in answers], dim=1)
    every = torch.cat([logits for logits, _ in answers])
    places = torch.cat([targets for _, targets in answers if targets is not None])
    whole = torch.full((int(places.max()) + 1, every.shape[1]), float("nan"))
    whole[places] = every
    return whole
