"""A mixture of experts on one device: a few launches, no word with the host, the same sums always.

Few rows: logits (with the norm), gate_up (with the choice and the shared experts' part), down with
the sum. Some rows: the choice beside the shared experts' part, and the sum, get launches of their
own. Many rows: the library multiplies what all rows share. Everything is allocated once in a
`Workspace`; grids follow from shapes alone, so that a graph can capture a call. Bytes moved: the
weights of the experts that rows chose, the shared ones and the router, once each while an expert's
rows fit one tile.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch

from panel.kernels.expert_down import expert_down
from panel.kernels.expert_gate_up import choose_share_and_gate_up, expert_gate_up
from panel.kernels.expert_logits import expert_logits
from panel.kernels.expert_plan import Plan, Plans, plans_for
from panel.kernels.expert_route import Choice, route
from panel.kernels.expert_shared import route_and_share, share_by_library
from panel.kernels.grouping import Groups
from panel.kernels.norm import rms_norm, rms_norm_reference
from panel.kernels.router import Routing, choose_reference

FUSED_ROWS = 128
"""Most rows whose norm and logits are one launch; the library computes the logits of more."""
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
    plans: Plans
    slots: int
    groups: Groups
    normed: torch.Tensor
    """[rows, hidden]"""
    logits: torch.Tensor
    """float32 [rows, experts]"""
    shared: torch.Tensor
    """[rows, shared columns]"""
    act: torch.Tensor
    """[rows * chosen, columns]"""
    results: torch.Tensor
    """Bytes for a row of `hidden` for each pair and each part of the shared experts; before, for
    the shared experts' gates and ups of many rows."""
    tickets: torch.Tensor

    @classmethod
    def of(
        cls, rows: int, weights: ExpertWeights, routing: Routing, plans: Plans | None = None
    ) -> Workspace:
        """Allocate for at most `rows` rows and layers with the shapes of `weights`.

        Without `plans` they are those for this device and type of numbers.
        """
        dtype, device = weights.route.dtype, weights.route.device
        slots, columns, hidden = weights.down.shape
        shared = weights.shared_down.shape[0]
        exact = min(rows, EXACT_ROWS) * (routing.chosen + PARTS) * 4 * hidden
        rounded = rows * (routing.chosen + 1) * dtype.itemsize * hidden
        both = rows * 2 * shared * dtype.itemsize

        def empty(*shape: int, dtype: torch.dtype = dtype) -> torch.Tensor:
            return torch.empty(shape, dtype=dtype, device=device)

        return cls(
            routing=routing,
            plans=plans or plans_for(dtype, device),
            slots=slots,
            groups=Groups.of(rows, routing, slots, device),
            normed=empty(rows, hidden),
            logits=empty(rows, routing.experts, dtype=torch.float32),
            shared=empty(rows, shared),
            act=empty(rows * routing.chosen, columns),
            results=empty(-(-max(exact, rounded, both) // 256) * 256, dtype=torch.uint8),
            tickets=torch.zeros(hidden, dtype=torch.int32, device=device),
        )

    def choice(
        self,
        rows: int,
        weights: ExpertWeights,
        plan: Plan,
        real: torch.Tensor | None = None,
        counts: torch.Tensor | None = None,
    ) -> Choice:
        """Return the choice for the logits of so many rows."""
        return Choice(
            self.logits[:rows],
            self.routing,
            self.groups,
            self.slots,
            plan.gate_up.rows,
            weights.bias,
            weights.table,
            real,
            counts,
        )

    def scratch(self, columns: int, dtype: torch.dtype) -> torch.Tensor:
        """Return `results` as rows of so many columns."""
        flat = self.results.view(dtype)
        return flat[: flat.numel() // columns * columns].view(-1, columns)


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
) -> None:
    """Write this device's part of the mixture for `x`, plus `residual`, into `out`.

    Shapes: x, residual and out [rows, hidden], of which any may be the same tensor; real: rows that
    are no padding, bool [rows] or an int count [1], the others get no routed experts; counts int64
    [experts], increased by the real rows that chose each expert. One call at a time a workspace.
    """
    rows = x.shape[0]
    plan = workspace.plans.of(rows)
    choice = workspace.choice(rows, weights, plan, real, counts)
    score(x, weights, workspace)
    if plan.few(rows):
        all_gate_up(weights, workspace, plan, choice)
    else:
        choose_and_share(weights, workspace, plan, choice)
        gate_up(rows, weights, workspace, plan)
    down(weights, workspace, plan, residual, out)


def score(x: torch.Tensor, weights: ExpertWeights, workspace: Workspace) -> None:
    """Write the normed rows and the router's logits."""
    rows, gain, floor, router = x.shape[0], weights.gain, weights.floor, weights.route
    normed, logits = workspace.normed[:rows], workspace.logits[:rows]
    if rows <= FUSED_ROWS:
        expert_logits(x, gain, floor, router, normed, logits)
        return
    rms_norm(x, gain, floor, out=normed)
    if router.dtype != torch.float32 and router.is_cuda:
        torch.mm(normed, router, torch.float32, out=logits)
    else:
        torch.mm(normed.float(), router.float(), out=logits)


def choose_and_share(
    weights: ExpertWeights, workspace: Workspace, plan: Plan, choice: Choice
) -> None:
    """Write the groups and the shared experts' activation."""
    rows = choice.logits.shape[0]
    normed, shared = workspace.normed[:rows], workspace.shared[:rows]
    if plan.shared is not None:
        route_and_share(normed, weights.shared_gate_up, choice, shared, plan.shared)
        return
    route(choice)
    if shared.numel():
        both = workspace.scratch(2 * shared.shape[1], normed.dtype)[:rows]
        share_by_library(normed, weights.shared_gate_up, both, shared)


def gate_up(rows: int, weights: ExpertWeights, workspace: Workspace, plan: Plan) -> None:
    """Write the routed experts' activation."""
    normed, groups, act = workspace.normed[:rows], workspace.groups, workspace.act
    expert_gate_up(normed, weights.gate_up, groups, act, plan.gate_up)


def all_gate_up(weights: ExpertWeights, workspace: Workspace, plan: Plan, choice: Choice) -> None:
    """Write the groups, and the activation of routed and shared experts."""
    rows = choice.logits.shape[0]
    choose_share_and_gate_up(
        workspace.normed[:rows],
        weights.gate_up,
        weights.shared_gate_up,
        choice,
        workspace.act,
        workspace.shared[:rows],
        plan.gate_up,
    )


def down(
    weights: ExpertWeights,
    workspace: Workspace,
    plan: Plan,
    residual: torch.Tensor | None,
    out: torch.Tensor,
) -> None:
    """Write the experts' results and their sum."""
    rows, hidden = out.shape
    library = plan.library(rows)
    exact = rows <= EXACT_ROWS and not library
    expert_down(
        workspace.act,
        weights.down,
        workspace.shared[:rows],
        weights.shared_down,
        workspace.groups,
        workspace.scratch(hidden, torch.float32 if exact else workspace.normed.dtype),
        residual,
        out,
        workspace.tickets,
        plan.down,
        parts=min(plan.parts, PARTS) if exact else 1,
        shared_rows=plan.shared.rows if plan.shared else plan.gate_up.rows,
        last_adds=plan.last_adds and rows <= plan.gate_up.rows,
        library=library,
    )
