"""A mixture of experts on one device: a few launches, no word with the host, the same sums always.

Few rows: input (norm, router, choice, shared experts' activation), gate_up, down with the sum.
More rows: the norm, the choice, its scatter and the sum get launches of their own, as the plan for
this number of rows says. Everything is allocated once in a `Workspace`; grids follow from shapes
alone, so that a graph can capture a call. Bytes moved: the weights of the experts that rows chose,
the shared ones and the router, once each while an expert's rows fit one tile.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

import torch

from panel.kernels.expert_down import expert_down
from panel.kernels.expert_gate_up import expert_gate_up
from panel.kernels.expert_input import expert_input
from panel.kernels.expert_plan import DEFAULT_PLANS, Plan, Plans
from panel.kernels.grouping import Groups, block_rows, route
from panel.kernels.norm import rms_norm, rms_norm_reference
from panel.kernels.router import Routing, choose_reference

EXACT_ROWS = 256
"""Most rows whose experts' results are kept in float32 until they are summed."""
PARTS = 4
"""Most parts of the shared experts' columns; of more rows there is one."""


@dataclass(frozen=True, slots=True)
class ExpertWeights:
    """One layer's weights, contiguous, as [input, output]."""

    gain: torch.Tensor
    """[hidden], the checkpoint's times sqrt(hidden)."""
    floor: torch.Tensor
    """A scalar, sqrt(hidden * epsilon)."""
    route: torch.Tensor
    """[hidden, experts]"""
    gate_up: torch.Tensor
    """[slots, hidden, 2 * columns]: all gates, then all ups."""
    down: torch.Tensor
    """[slots, columns, hidden], with the routed experts' scaling."""
    shared_gate_up: torch.Tensor
    """[hidden, 2 * shared columns]; no columns without shared experts."""
    shared_down: torch.Tensor
    """[shared columns, hidden]"""
    bias: torch.Tensor | None = None
    """float32 [experts]: correction for the choice alone."""
    table: torch.Tensor | None = None
    """int32 [experts] or [turns, experts]: the slot of an expert here, or -1, for the rows whose
    number modulo `turns` it is; without it expert and slot are one."""

    def __post_init__(self) -> None:
        for name in ("route", "gate_up", "down", "shared_gate_up", "shared_down"):
            if not getattr(self, name).is_contiguous():
                raise ValueError(f"the experts' weights {name} do not lie row after row in memory")


@dataclass(frozen=True, slots=True)
class Workspace:
    """What a call needs between its launches; shared by all layers."""

    routing: Routing
    slots: int
    groups: Groups
    normed: torch.Tensor
    """[rows, hidden]"""
    logits: torch.Tensor
    """float32 [rows, experts]"""
    shared: torch.Tensor
    """[rows, shared columns]"""
    act: torch.Tensor
    """[pairs, columns]"""
    results: torch.Tensor
    """Bytes for a row of `hidden` for each pair and each part of the shared experts."""
    tickets: torch.Tensor

    @classmethod
    def of(cls, rows: int, weights: ExpertWeights, routing: Routing) -> Workspace:
        """Allocate for at most `rows` rows and layers with the shapes of `weights`."""
        dtype, device = weights.route.dtype, weights.route.device
        slots, columns, hidden = weights.down.shape
        pairs = rows * routing.chosen
        exact = min(rows, EXACT_ROWS) * (routing.chosen + PARTS) * 4
        size = max(exact, rows * (routing.chosen + 1) * dtype.itemsize) * hidden

        def empty(*shape: int, dtype: torch.dtype = dtype) -> torch.Tensor:
            return torch.empty(shape, dtype=dtype, device=device)

        return cls(
            routing=routing,
            slots=slots,
            groups=Groups.of(rows, routing, slots, device),
            normed=empty(rows, hidden),
            logits=empty(rows, routing.experts, dtype=torch.float32),
            shared=empty(rows, weights.shared_down.shape[0]),
            act=empty(pairs, columns),
            results=empty(size, dtype=torch.uint8),
            tickets=torch.zeros(hidden, dtype=torch.int32, device=device),
        )

    def result_rows(self, rows: int) -> torch.Tensor:
        """Return `results` as rows for a call with `rows` rows."""
        hidden = self.normed.shape[1]
        dtype = torch.float32 if rows <= EXACT_ROWS else self.normed.dtype
        return self.results.view(dtype).view(-1, hidden)


def moe_reference(
    x: torch.Tensor,
    weights: ExpertWeights,
    routing: Routing,
    *,
    real: torch.Tensor | None = None,
    residual: torch.Tensor | None = None,
    choice: tuple[torch.Tensor, torch.Tensor] | None = None,
) -> torch.Tensor:
    """Return what `moe` writes, in float32, one expert after the other.

    `choice`: ids and weights as chosen elsewhere, since logits that differ by rounding may choose
    another expert.
    """
    silu = torch.nn.functional.silu
    normed = rms_norm_reference(x.float(), weights.gain, weights.floor)
    gate, up = (normed @ weights.shared_gate_up.float()).chunk(2, dim=1)
    result = (silu(gate) * up) @ weights.shared_down.float()
    ids, shares = choice or choose_reference(normed @ weights.route.float(), weights.bias, routing)
    number = torch.arange(x.shape[0], device=x.device)
    slots = ids
    if weights.table is not None:
        table = torch.atleast_2d(weights.table)
        slots = table[(number % table.shape[0])[:, None], ids]
    if real is not None:
        there = real if real.dtype == torch.bool else number < real
        slots = slots.masked_fill(~there[:, None], -1)
    for slot in range(weights.down.shape[0]):
        rows, turns = (slots == slot).nonzero().unbind(1)
        gate, up = (normed[rows] @ weights.gate_up[slot].float()).chunk(2, dim=1)
        act = silu(gate) * up * shares[rows, turns, None]
        result.index_add_(0, rows, act @ weights.down[slot].float())
    return result if residual is None else result + residual.float()


def moe(
    x: torch.Tensor,
    weights: ExpertWeights,
    workspace: Workspace,
    out: torch.Tensor,
    *,
    residual: torch.Tensor | None = None,
    real: torch.Tensor | None = None,
    counts: torch.Tensor | None = None,
    plans: Plans = DEFAULT_PLANS,
) -> None:
    """Write this device's part of the mixture for `x`, plus `residual`, into `out`.

    Shapes: x, residual and out [rows, hidden], of which any may be the same tensor; real: rows that
    are no padding, bool [rows] or an int count [1], the others get no routed experts; counts int64
    [experts], increased by the real rows that chose each expert. One call at a time a workspace.
    """
    rows = x.shape[0]
    choose_and_share(x, weights, workspace, plans.of(rows), real=real, counts=counts)
    gate_up(rows, weights, workspace, plans.of(rows))
    down(weights, workspace, plans.of(rows), residual, out)


def choose_and_share(
    x: torch.Tensor,
    weights: ExpertWeights,
    workspace: Workspace,
    plan: Plan,
    *,
    real: torch.Tensor | None = None,
    counts: torch.Tensor | None = None,
) -> None:
    """Write the normed rows, the groups and the shared experts' activation."""
    rows, ws = x.shape[0], workspace
    gain, floor, source = weights.gain, weights.floor, x
    fits = rows <= plan.input.rows
    fused = plan.fuse_norm and fits
    if not fused:
        source = rms_norm(x, gain, floor, out=ws.normed[:rows])
    experts = ws.routing.experts
    together = plan.fuse_choice and fits and block_rows(rows, experts, ws.slots) >= rows
    logits = ws.logits[:rows]
    expert_input(
        source,
        gain if fused else None,
        floor if fused else None,
        weights.route,
        weights.shared_gate_up,
        ws.normed[:rows],
        logits,
        ws.shared[:rows],
        plan.input,
        bias=weights.bias,
        routing=ws.routing,
        groups=ws.groups if together else None,
        slots=ws.slots,
        height=plan.gate_up.rows,
        table=weights.table,
        real=real,
        counts=counts,
    )
    if not together:
        route(
            logits,
            weights.bias,
            ws.routing,
            ws.groups,
            slots=ws.slots,
            height=plan.gate_up.rows,
            table=weights.table,
            real=real,
            counts=counts,
        )


def gate_up(rows: int, weights: ExpertWeights, workspace: Workspace, plan: Plan) -> None:
    """Write the routed experts' activation."""
    expert_gate_up(
        workspace.normed[:rows],
        weights.gate_up,
        workspace.groups,
        workspace.act,
        plan.gate_up,
        chosen=workspace.routing.chosen,
    )


def down(
    weights: ExpertWeights,
    workspace: Workspace,
    plan: Plan,
    residual: torch.Tensor | None,
    out: torch.Tensor,
) -> None:
    """Write the experts' results and their sum."""
    rows = out.shape[0]
    expert_down(
        workspace.act,
        weights.down,
        workspace.shared[:rows],
        weights.shared_down,
        workspace.groups,
        workspace.result_rows(rows),
        residual,
        out,
        workspace.tickets,
        replace(plan.down, rows=plan.gate_up.rows),
        parts=min(plan.parts, PARTS) if rows <= EXACT_ROWS else 1,
        shared_rows=plan.shared_rows,
        last_adds=plan.last_adds and rows <= plan.gate_up.rows,
    )
