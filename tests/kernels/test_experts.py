"""The mixture of experts against its reference, in Triton's interpreter."""

from __future__ import annotations

from tests.kernels import interpreting  # noqa: F401

# isort: split

from dataclasses import dataclass, replace

import pytest
import torch

from panel.kernels.expert_plan import BUCKETS, MEASURED, Plan, Plans, plans_for
from panel.kernels.expert_tiles import Tile
from panel.kernels.experts import ExpertWeights, Workspace, moe, moe_reference
from panel.kernels.norm import rms_norm_reference
from panel.kernels.router import Routing

SMALL = Tile(16, 32, 32)
TURNED = replace(SMALL, swap=True, group=2)
FEW = Plan(SMALL, SMALL, parts=2, last_adds=True)
FEW_TURNED = Plan(TURNED, replace(TURNED, columns=16), parts=2)
SOME = Plan(SMALL, SMALL, shared=replace(SMALL, rows=32), parts=3)
SOME_TURNED = Plan(TURNED, replace(TURNED, columns=16), shared=TURNED, parts=2)
MANY = Plan(replace(SMALL, rows=32), replace(SMALL, rows=32, group=2))
PLANS = {"few": FEW_TURNED, "some": SOME, "many": MANY}
every_plan = pytest.mark.parametrize("plan", PLANS.values(), ids=PLANS)


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
    workspace = Workspace.of(rows, weights, routing, plans(plan))
    workspace.results.fill_(0xFF)  # no numbers
    workspace.act.fill_(float("nan"))
    for _ in range(calls):
        x = torch.randn(rows, hidden).to(dtype)
        out = torch.full_like(x, float("nan"))
        moe(x, weights, workspace, out, **options)
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
    ("rows", "plan"),
    [(1, FEW), (7, FEW), (16, FEW_TURNED), (3, SOME_TURNED), (40, SOME), (35, MANY)],
)
def test_rows(rows: int, plan: Plan, dtype: torch.dtype) -> None:
    ours, reference = run(rows, weights_of(PLAIN, Shape(), dtype), PLAIN, plan, calls=2)
    assert close(ours, reference)


@every_plan
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
    assert close(*run(6, weights, routing, FEW))


@every_plan
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


@every_plan
def test_all_rows_on_the_same_experts(plan: Plan) -> None:
    weights = weights_of(PLAIN, Shape(), torch.float32)
    weights = replace(weights, route=weights.route * 0)
    assert close(*run(16 if plan is FEW_TURNED else 35, weights, PLAIN, plan))


@every_plan
@pytest.mark.parametrize(
    "real", [torch.tensor([True, False, True, True, False]), torch.tensor([3]), None]
)
def test_padding_goes_to_no_expert_and_is_not_counted(
    real: torch.Tensor | None, plan: Plan
) -> None:
    weights, counts = weights_of(PLAIN, Shape(), torch.float32), torch.zeros(8, dtype=torch.int64)
    assert close(*run(5, weights, PLAIN, plan, real=real, counts=counts))
    assert counts.sum() == 3 * (5 if real is None else 3)


@every_plan
def test_residual_in_place(plan: Plan) -> None:
    weights = weights_of(PLAIN, Shape(), torch.float32)
    x = torch.randn(4, 64)
    reference = moe_reference(x, weights, PLAIN, residual=x)
    moe(x, weights, Workspace.of(6, weights, PLAIN, plans(plan)), x, residual=x)
    assert close(x, reference)


@pytest.mark.filterwarnings("ignore::RuntimeWarning")
def test_a_row_that_is_no_number_spoils_no_other() -> None:
    weights = weights_of(PLAIN, Shape(), torch.float32)
    x = torch.randn(4, 64)
    x[2, 5] = float("nan")
    reference, out = moe_reference(x, weights, PLAIN), torch.empty_like(x)
    moe(x, weights, Workspace.of(4, weights, PLAIN, plans(FEW)), out)
    assert out[2].isnan().all()
    others = torch.tensor([0, 1, 3])
    assert close(out[others], reference[others])


def test_shapes_of_a_small_model_by_the_plans_as_they_are() -> None:
    routing = Routing(16, 4, normalise=True)
    weights = weights_of(routing, Shape(256, 64, 64, 16), torch.float32)
    for rows in (1, 4, 20):
        workspace = Workspace.of(rows, weights, routing)
        x = torch.randn(rows, 256)
        out = torch.empty_like(x)
        moe(x, weights, workspace, out)
        assert close(out, moe_reference(x, weights, routing))


@pytest.mark.parametrize("itemsize", [2, 4])
@pytest.mark.parametrize("limit", [99 << 10, 163 << 10, 227 << 10])
def test_plans_fit_the_shared_memory(itemsize: int, limit: int) -> None:
    for plan in MEASURED.values():
        fitted = plan.fitted(itemsize, limit)
        assert fitted.gate_up.rows == fitted.down.rows
        for tile, factor in ((fitted.gate_up, 2), (fitted.shared, 2), (fitted.down, 1)):
            if tile is not None:
                block = (tile.rows + factor * tile.columns) * tile.inner * itemsize
                assert tile.stages >= 2
                assert tile.stages * block <= limit


def test_plans_as_they_were_measured_where_they_fit() -> None:
    assert plans_for(torch.bfloat16, torch.device("cpu")) == Plans(MEASURED)


def test_plans_as_json() -> None:
    known = Plans(MEASURED)
    assert Plans.from_json(known.to_json()) == known
    assert Plans.from_json({}) == known
    assert known.of(100) is known.of(128)
    assert known.of(99999) is known.of(2048)
