"""One layer's attention over grouped heads, as a rank computes it, against plain torch."""

from __future__ import annotations

from dataclasses import fields, replace
from typing import Any

import pytest
import torch

from tests.kernels import interpreting  # noqa: F401

# isort: split
from panel.server.batch import build_batch
from panel.server.cuda.grouped import attend_grouped
from panel.server.cuda.layout import Paper, lay_out
from panel.server.cuda.step import Step
from panel.server.cuda.upload import upload
from panel.server.grouped import GroupedAttention
from panel.server.norm import RMSNorm
from panel.server.plan import Plan
from tests.kernels.test_latent import error
from tests.kernels.test_stack import apart
from tests.server.plans import PAGE, steps

__all__ = ["apart"]

HIDDEN, WIDTH, SLOTS = 32, 16, 16 * PAGE
TEXTS = [[3, 1, 4, 1, 5, 9, 2], list(range(100, 112))]


def random_attention(heads: int, groups: int, bias: bool) -> GroupedAttention:
    columns = (heads + 2 * groups) * WIDTH
    return GroupedAttention(
        norm=RMSNorm.of(torch.rand(HIDDEN), 1e-6),
        qkv=torch.randn(HIDDEN, columns) * HIDDEN**-0.5,
        qkv_bias=torch.randn(columns) if bias else None,
        query_norm=RMSNorm.of(torch.rand(WIDTH), 1e-6),
        key_norm=RMSNorm.of(torch.rand(WIDTH), 1e-6),
        out=torch.eye(heads * WIDTH),
        out_bias=None,
        heads=heads,
        kv_heads=groups,
    )


def converted(tree: Any, dtype: torch.dtype) -> Any:
    """Return the same weights as numbers of another type."""
    if isinstance(tree, torch.Tensor):
        return tree.to(dtype)
    if isinstance(tree, GroupedAttention | RMSNorm):
        every = {each.name: getattr(tree, each.name) for each in fields(tree)}
        return replace(tree, **{name: converted(part, dtype) for name, part in every.items()})
    return tree


def step_of(plan: Plan) -> tuple[Step, torch.Tensor]:
    """Return a plan's step with all its tokens, and which of its rows are no padding."""
    layout = lay_out(plan, Paper(PAGE, 512, 4), plan.width)
    inputs = upload({**layout.arrays, "table": layout.table}, torch.device("cpu"))
    step = Step(layout.count, layout.width, layout.chunks, inputs.views, None)
    return step, inputs.views["real"]


@pytest.mark.usefixtures("apart")
@pytest.mark.parametrize(
    ("heads", "groups", "bias", "dtype"),
    [
        (6, 2, True, torch.float16),
        (6, 2, False, torch.float32),
        # Of a cached head that several ranks hold.
        (2, 1, True, torch.float32),
    ],
)
def test_a_ranks_part_is_that_of_the_plain_path(
    heads: int, groups: int, bias: bool, dtype: torch.dtype
) -> None:
    torch.manual_seed(0)
    ours = converted(random_attention(heads, groups, bias), dtype)
    plain = converted(ours, torch.float32)
    angles = torch.rand(512, WIDTH // 2) * 6
    rotation = torch.polar(torch.ones_like(angles), angles)
    turns = torch.view_as_real(rotation).flatten(1)
    # What nobody has written must not reach a result.
    wanted_cache, cache = (torch.full((SLOTS, 2 * groups * WIDTH), float("nan")) for _ in range(2))
    wanted_cache[:PAGE] = cache[:PAGE] = 0
    cache = cache.to(dtype)
    for plan in steps(TEXTS, chunk=4):
        step, real = step_of(plan)
        hidden = torch.randn(len(real), HIDDEN).to(dtype)
        batch = build_batch(plan, PAGE, torch.device("cpu"))
        part = torch.empty(len(real), heads * WIDTH)
        plain(hidden.float(), rotation[batch.positions].unsqueeze(1), batch, wanted_cache, part)
        mixed = attend_grouped(ours, ours.norm(hidden), step, cache, turns, PAGE)
        most = 1e-5 if dtype is torch.float32 else 1e-2
        assert error(mixed[real], part[real]) < most
        slots = batch.slots[real]
        assert error(cache[slots], wanted_cache[slots]) < most
