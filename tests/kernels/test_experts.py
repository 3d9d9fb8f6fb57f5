"""The mixture of experts against its reference, in Triton's interpreter."""

from __future__ import annotations

from tests.kernels import interpreting  # noqa: F401

# isort: split

from dataclasses import dataclass, replace

import pytest
import torch

from panel.kernels.expert_plan import BUCKETS, DEFAULT_PLANS, Plan, Plans
from panel.kernels.expert_tiles import Tile
from panel.kernels.experts import ExpertWeights, Workspace, moe, moe_reference
from panel.kernels.norm import rms_norm_reference
from panel.kernels.router import Routing

SMALL = Tile(16, 32, 32)
FUSED = Plan(SMALL, SMALL, SMALL, parts=2)
APART = Plan(
    replace(SMALL, swap=True),
    replace(SMALL, swap=True, group=2),
    replace(SMALL, columns=16, swap=True, group=2),
    parts=3,
    shared_rows=32,
    fuse_norm=False,
    fuse_choice=False,
    last_adds=False,
)


@dataclass(frozen=True)
class Shape:
    hidden: int = 64
    columns: int = 48
    shared: int = 80
    slots: int = 8


def plans(plan: Plan) -> Plans:
    return Plans(dict.fromkeys(BUCKETS, plan))


def weights_of(routing: Routing, shape: Shape, dtype: torch.dtype, seed: int = 0) -> ExpertWeights:
    draw = torch.Generator().manual_seed(seed)

    def random(*size: int) -> torch.Tensor:
        return torch.randn(size, generator=draw).mul_(size[-2] ** -0.5 if size[1:] else 1).to(dtype)

    return ExpertWeights(
        gain=(random(shape.hidden).abs() * shape.hidden**0.5).to(dtype),
        floor=torch.tensor((shape.hidden * 1e-6) ** 0.5),
        route=random(shape.hidden, routing.experts),
        gate_up=random(shape.slots, shape.hidden, 2 * shape.columns),
        down=random(shape.slots, shape.columns, shape.hidden),
        shared_gate_up=random(shape.hidden, 2 * shape.shared),
        shared_down=random(max(1, shape.shared), shape.hidden)[: shape.shared],
    )  # fmt: skip


def run(
    rows: int,
    weights: ExpertWeights,
    routing: Routing,
    plan: Plan,
    calls: int = 1,
    **options: torch.Tensor | None,
) -> tuple[torch.Tensor, torch.Tensor]:
    """Return the kernel's result and the reference's, after `calls` on one workspace."""
    dtype, hidden = weights.route.dtype, weights.route.shape[0]
    workspace = Workspace.of(rows, weights, routing)
    workspace.results.fill_(0xFF)  # no numbers
    workspace.act.fill_(float("nan"))
    for _ in range(calls):
        x = torch.randn(rows, hidden).to(dtype)
        out = torch.full_like(x, float("nan"))
        moe(x, weights, workspace, out, plans=plans(plan), **options)
    logits = rms_norm_reference(x.float(), weights.gain, weights.floor) @ weights.route.float()
    assert close(workspace.logits, logits)
    choice = workspace.groups.ids.long(), workspace.groups.weights
    reference = moe_reference(
        x,
        weights,
        routing,
        real=options.get("real"),
        choice=choice,
        residual=options.get("residual"),
    )
    return out.float(), reference


def close(ours: torch.Tensor, reference: torch.Tensor) -> bool:
    return bool((ours - reference).norm() <= 3e-3 * reference.norm())


PLAIN = Routing(8, 3)


@pytest.mark.parametrize("dtype", [torch.float32, torch.float16])
@pytest.mark.parametrize(
    ("rows", "plan"), [(1, FUSED), (7, FUSED), (16, FUSED), (3, APART), (40, APART)]
)
def test_rows(rows: int, plan: Plan, dtype: torch.dtype) -> None:
    ours, reference = run(rows, weights_of(PLAIN, Shape(), dtype), PLAIN, plan, calls=2)
    assert close(ours, reference)


@pytest.mark.parametrize("plan", [FUSED, APART])
@pytest.mark.parametrize(
    "shape", [Shape(hidden=72, columns=20, shared=36), Shape(shared=0)], ids=["odd", "no shared"]
)
def test_widths(shape: Shape, plan: Plan) -> None:
    ours, reference = run(5, weights_of(PLAIN, shape, torch.float32), PLAIN, plan)
    assert close(ours, reference)


@pytest.mark.parametrize(
    "routing",
    [
        Routing(8, 3, sigmoid=True, normalise=True),
        Routing(12, 2, groups=4, groups_kept=2, group_best=1),
        Routing(12, 4, sigmoid=True, normalise=True, groups=3, groups_kept=2, group_best=2),
    ],
)
def test_routing(routing: Routing) -> None:
    weights = weights_of(routing, Shape(slots=routing.experts), torch.float32)
    weights = replace(weights, bias=torch.randn(routing.experts))
    assert close(*run(6, weights, routing, FUSED))


@pytest.mark.parametrize("plan", [FUSED, APART])
@pytest.mark.parametrize(
    "table",
    [
        [0, -1, 1, -1, -1, 2, -1, 3],
        [-1] * 8,
        [[0, -1, 1, -1, -1, 2, -1, 3], [0, 1, -1, -1, -1, -1, 2, 3]],
    ],
    ids=["some", "none", "replicas"],
)
def test_experts_elsewhere(table: list[int], plan: Plan) -> None:
    weights = weights_of(PLAIN, Shape(slots=4), torch.float32)
    weights = replace(weights, table=torch.tensor(table, dtype=torch.int32))
    assert close(*run(9, weights, PLAIN, plan))
    bare = weights_of(PLAIN, Shape(slots=4, shared=0), torch.float32)
    bare = replace(bare, table=torch.tensor(table, dtype=torch.int32))
    ours, reference = run(9, bare, PLAIN, plan)
    assert close(ours, reference) or (not reference.any() and not ours.any())


@pytest.mark.parametrize("plan", [FUSED, APART])
def test_all_rows_on_the_same_experts(plan: Plan) -> None:
    weights = weights_of(PLAIN, Shape(), torch.float32)
    weights = replace(weights, route=weights.route * 0)
    assert close(*run(16 if plan is FUSED else 35, weights, PLAIN, plan))


@pytest.mark.parametrize("plan", [FUSED, APART])
@pytest.mark.parametrize(
    "real", [torch.tensor([True, False, True, True, False]), torch.tensor([3]), None]
)
def test_padding_goes_to_no_expert_and_is_not_counted(
    real: torch.Tensor | None, plan: Plan
) -> None:
    weights, counts = weights_of(PLAIN, Shape(), torch.float32), torch.zeros(8, dtype=torch.int64)
    assert close(*run(5, weights, PLAIN, plan, real=real, counts=counts))
    assert counts.sum() == 3 * (5 if real is None else 3)


@pytest.mark.parametrize("plan", [FUSED, APART])
def test_residual_in_place(plan: Plan) -> None:
    weights = weights_of(PLAIN, Shape(), torch.float32)
    x = torch.randn(4, 64)
    reference = moe_reference(x, weights, PLAIN, residual=x)
    moe(x, weights, Workspace.of(6, weights, PLAIN), x, residual=x, plans=plans(plan))
    assert close(x, reference)


@pytest.mark.filterwarnings("ignore::RuntimeWarning")
def test_a_row_that_is_no_number_spoils_no_other() -> None:
    weights = weights_of(PLAIN, Shape(), torch.float32)
    x = torch.randn(4, 64)
    x[2, 5] = float("nan")
    reference, out = moe_reference(x, weights, PLAIN), torch.empty_like(x)
    moe(x, weights, Workspace.of(4, weights, PLAIN), out, plans=plans(FUSED))
    assert out[2].isnan().all()
    others = torch.tensor([0, 1, 3])
    assert close(out[others], reference[others])


def test_plans_as_json() -> None:
    assert Plans.from_json(DEFAULT_PLANS.to_json()) == DEFAULT_PLANS
    assert Plans.from_json("{}") == DEFAULT_PLANS
    assert DEFAULT_PLANS.of(100) is DEFAULT_PLANS.of(128)
    assert DEFAULT_PLANS.of(99999) is DEFAULT_PLANS.of(2048)
