"""Measure plans of the mixture of experts on this GPU. Never call it while a graph is captured."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace
from functools import partial
from math import inf
from time import monotonic

import torch

from panel.kernels.expert_plan import DEFAULT_PLANS, Plan, Plans, bucket
from panel.kernels.expert_tiles import Tile
from panel.kernels.experts import (
    ExpertWeights,
    Workspace,
    choose_and_share,
    down,
    gate_up,
    moe,
)
from panel.kernels.router import Routing
from panel.kernels.timing import microseconds

Report = Callable[[str], None]


@dataclass(frozen=True, slots=True)
class Setting:
    """What the plans for one number of rows are measured with."""

    rows: int
    layers: Sequence[ExpertWeights]
    """Layers that are together larger than the L2 cache."""
    workspace: Workspace
    x: torch.Tensor
    out: torch.Tensor
    report: Report
    deadline: float

    def input(self, plan: Plan, layer: ExpertWeights) -> None:
        choose_and_share(self.x, layer, self.workspace, plan)

    def gate_up(self, plan: Plan, layer: ExpertWeights) -> None:
        gate_up(self.rows, layer, self.workspace, plan)

    def down(self, plan: Plan, layer: ExpertWeights) -> None:
        down(layer, self.workspace, plan, self.x, self.out)

    def whole(self, plan: Plan, layer: ExpertWeights) -> None:
        plans = Plans({bucket(self.rows): plan})
        moe(self.x, layer, self.workspace, self.out, residual=self.x, plans=plans)

    def fastest(
        self, part: Callable[[Plan, ExpertWeights], None], plans: Sequence[Plan]
    ) -> tuple[float, Plan]:
        """Return the fastest plan for a part and its microseconds; the first after the deadline."""
        return min(((self.time(part, plan), plan) for plan in plans), key=lambda found: found[0])

    def time(self, part: Callable[[Plan, ExpertWeights], None], plan: Plan) -> float:
        """Return a part's microseconds; infinitely many where it fails or time is up."""
        if monotonic() > self.deadline:
            return inf
        try:
            spent = microseconds([partial(part, plan, layer) for layer in self.layers])
        except Exception as error:
            self.report(
                f"{self.rows} rows, {part.__name__}, {plan}: {type(error).__name__}: {error}"
            )
            self.workspace.tickets.zero_()
            self.workspace.groups.ticket.zero_()
            return inf
        name = part.__name__
        how = {
            "input": f"{plan.input} norm {plan.fuse_norm:d} choice {plan.fuse_choice:d}",
            "gate_up": str(plan.gate_up),
            "down": f"{plan.down} parts {plan.parts} of {plan.shared_rows} last {plan.last_adds:d}",
        }
        self.report(f"{self.rows:6} rows {name:8} {spent:9.1f} us  {how[name]}")
        return spent


def tune(
    layers: Sequence[ExpertWeights],
    routing: Routing,
    rows: Iterable[int],
    *,
    known: Plans = DEFAULT_PLANS,
    seconds: float = inf,
    report: Report = lambda _: None,
) -> Plans:
    """Return `known` with the fastest plans for these numbers of rows, in at most `seconds`.

    `layers` must be larger than the L2 cache together. Give all ranks the same result.
    """
    found = dict(known.buckets)
    deadline = monotonic() + seconds
    for count in rows:
        x = torch.randn(count, layers[0].route.shape[0], device=layers[0].route.device)
        x = x.to(layers[0].route.dtype)
        workspace = Workspace.of(count, layers[0], routing)
        setting = Setting(count, layers, workspace, x, torch.empty_like(x), report, deadline)
        found[bucket(count)] = _tuned(setting, known.of(count))
    return Plans(found)


def _tuned(setting: Setting, rule: Plan) -> Plan:
    layer = setting.layers[0]
    inputs = input_plans(setting.rows, rule)
    pairs = [replace(rule, gate_up=tile, down=tile) for tile in gate_up_tiles(setting.rows, rule)]
    downs = down_plans(setting.rows, rule)
    setting.input(rule, layer)
    with ThreadPoolExecutor(12) as pool:
        for part, plans in (
            (setting.input, inputs),
            (setting.gate_up, pairs),
            (setting.down, downs),
        ):
            for plan in plans:
                pool.submit(part, plan, layer)
    torch.cuda.synchronize()
    setting.workspace.tickets.zero_()
    setting.workspace.groups.ticket.zero_()
    first = setting.fastest(setting.input, inputs)[1]
    best = (inf, rule)
    for height in dict.fromkeys(plan.gate_up.rows for plan in pairs):
        mine = [
            replace(first, gate_up=p.gate_up, down=p.down)
            for p in pairs
            if p.gate_up.rows == height
        ]
        setting.input(mine[0], layer)
        spent, plan = setting.fastest(setting.gate_up, mine)
        lasts = [
            replace(
                plan,
                down=last.down,
                parts=last.parts,
                shared_rows=last.shared_rows,
                last_adds=last.last_adds,
            )
            for last in downs
            if last.down.rows == height
        ]
        more, plan = setting.fastest(setting.down, lasts)
        best = min(best, (spent + more, plan), key=lambda pair: pair[0])
    return best[1]


def input_plans(rows: int, rule: Plan) -> list[Plan]:
    """Return the rule and other plans for the first launches."""
    height = rule.input.rows
    tiles = [rule.input]
    if rows <= 16:
        tiles += [
            Tile(16, 16, 256, 3),
            Tile(16, 32, 64, 6),
            Tile(16, 64, 64, 4),
            Tile(16, 32, 256, 3),
        ]
    elif rows <= 256:
        tiles += [
            Tile(height, 32, 128, 3),
            Tile(height, 64, 64, 4, swap=True),
            Tile(height, 16, 128, 4),
        ]
    else:
        tiles += [Tile(128, 64, 64, 4, 4), Tile(128, 128, 64, 4, 8)]
    plans = [replace(rule, input=tile) for tile in tiles]
    if rows <= 64:
        plans.append(replace(rule, fuse_norm=not rule.fuse_norm))
    if rows <= 16:
        plans.append(replace(rule, fuse_choice=not rule.fuse_choice))
    return plans


def gate_up_tiles(rows: int, rule: Plan) -> list[Tile]:
    """Return the rule's tile and others, of some heights."""
    if rows <= 64:
        return [
            rule.gate_up,
            Tile(16, 32, 128, 4, group=1),
            Tile(16, 64, 128, 3, group=1),
            Tile(16, 64, 64, 6, group=2),
            Tile(16, 128, 64, 4, 8, group=1),
            Tile(16, 64, 64, 4, swap=True, group=2),
            Tile(16, 64, 128, 3, swap=True, group=2),
        ]
    if rows <= 256:
        return [
            rule.gate_up,
            Tile(rule.gate_up.rows, 64, 128, 3, group=2),
            Tile(32, 64, 64, 4, group=2),
            Tile(32, 64, 64, 4, swap=True, group=2),
            Tile(32, 64, 128, 3, swap=True, group=2),
            Tile(64, 64, 64, 4, swap=True, group=2),
        ]
    tall = [Tile(128, 128, 64, 4, 8, group=8), Tile(128, 128, 64, 3, 8, group=16)]
    return [rule.gate_up, Tile(64, 128, 64, 3, 8, group=4), Tile(64, 64, 64, 4, 4, group=4), *tall]


def down_plans(rows: int, rule: Plan) -> list[Plan]:
    """Return the rule and other plans for the last launches, of some heights."""
    if rows <= 64:
        tiles = [
            rule.down,
            Tile(16, 128, 64, 4, group=1),
            Tile(16, 64, 64, 6, group=1),
            Tile(16, 32, 128, 4, group=1),
            Tile(16, 128, 128, 3, 8, group=1),
            Tile(16, 64, 128, 4, swap=True, group=2),
        ]
    elif rows <= 256:
        tiles = [
            replace(tile, rows=height)
            for height in dict.fromkeys(tile.rows for tile in gate_up_tiles(rows, rule))
            for tile in (
                rule.down,
                Tile(16, 64, 128, 4, swap=True, group=2),
                Tile(16, 128, 64, 4, swap=True, group=2),
            )
        ]
    else:
        tiles = [
            rule.down,
            *(Tile(64, 128, 64, 4, warps, group=4) for warps in (4, 8)),
            Tile(128, 128, 64, 4, 8, group=8),
            Tile(128, 256, 64, 3, 8, group=8),
        ]
    plans = [replace(rule, down=tile) for tile in tiles]
    if rows <= 256:
        plans += [replace(rule, parts=parts) for parts in (1, 4)]
    if 16 < rows <= 256:
        plans.append(replace(rule, shared_rows=16))
    if rows <= 16:
        plans.append(replace(rule, last_adds=not rule.last_adds))
    return plans
