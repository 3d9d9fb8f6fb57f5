"""Rows to experts on other ranks by kernels, against the exchange by torch: ranks over gloo."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

import torch
import torch.distributed as dist
from torch.multiprocessing.spawn import spawn

from tests.kernels import interpreting  # noqa: F401

# isort: split
from panel.kernels.experts import Workspace
from panel.kernels.router import Routing
from panel.server.batch import Batch
from panel.server.cuda.dispatch import Dispatch
from panel.server.cuda.mixture import weights_of
from panel.server.dispatch import ExpertsDispatched
from panel.server.exchange import DistributedExchange
from panel.server.experts import RoutedExperts, SharedExperts
from panel.server.norm import RMSNorm
from panel.server.parallel import Shard
from panel.server.placement import Placement
from panel.server.routing import Router
from panel.server.shape import RoutingShape

RANKS, CHOSEN = 3, 3
HIDDEN, COLUMNS, SHARED, EXPERTS, ROWS = 64, 32, 48, 9, 10
TABLES = {
    "plain": [4, 0, 1, 2, 3, 5, 8, 7, 6],
    "replicas": [0, 1, 2, 3, 0, 4, 5, 6, 7, 8, 0, 1],
}


@dataclass(frozen=True)
class Case:
    """What is tried: where rows are, and how many each rank has."""

    table: str
    dp: bool
    sharded: bool
    shared: int
    rows: list[int]
    alike: bool


# Of seven rows the last of three ranks sends one; of one row two ranks send none.
CASES = [
    Case("replicas", True, False, SHARED, [ROWS] * RANKS, True),
    Case("replicas", True, False, SHARED, [ROWS, 0, 3], False),
    Case("plain", True, False, 0, [2] * RANKS, False),
    Case("plain", False, True, SHARED, [7] * RANKS, True),
    Case("replicas", False, False, SHARED, [7] * RANKS, False),
    Case("plain", False, True, 0, [1] * RANKS, True),
]


def random(*shape: int, draw: torch.Generator) -> torch.Tensor:
    return torch.randn(shape, generator=draw).mul_(shape[-2] ** -0.5)


def layer_of(case: Case, rank: int) -> ExpertsDispatched:
    """Return the same layer on every rank, of which each has its part."""
    draw = torch.Generator().manual_seed(3)
    shard = Shard(rank, RANKS, RANKS, True, case.dp, case.sharded and not case.dp)
    placement = Placement.of(
        TABLES[case.table], shard, EXPERTS, torch.zeros(EXPERTS, dtype=torch.int64)
    )
    gate_up = random(EXPERTS, HIDDEN, 2 * COLUMNS, draw=draw)
    down = random(EXPERTS, COLUMNS, HIDDEN, draw=draw)
    shared = random(HIDDEN, 2 * case.shared, draw=draw).view(HIDDEN, 2, -1)
    shared_down = random(max(1, case.shared), HIDDEN, draw=draw)[: case.shared]
    part = shard.shared_part(case.shared)
    own = placement.experts[placement.own]
    split = None if case.dp else shard
    routing = RoutingShape(
        experts_per_token=CHOSEN,
        scoring="softmax",
        normalise=True,
        scale=1.0,
        groups=1,
        groups_per_token=1,
        group_best=1,
        correction=False,
    )
    return ExpertsDispatched(
        RMSNorm.of(1 + torch.rand(HIDDEN, generator=draw), 1e-6),
        Router(routing, None),
        placement,
        random(HIDDEN, EXPERTS, draw=draw) * 2,
        RoutedExperts(gate_up[own], down[own]),
        SharedExperts(
            shared[:, :, part].flatten(1).contiguous(),
            shared_down[part].contiguous(),
            None if shard.shared_sharded else split,
        ),
        DistributedExchange("gloo", RANKS),
        split,
    )


def compare(case: Case, rank: int) -> None:
    layer = layer_of(case, rank)
    load = layer.placement.load
    assert load is not None
    rows = case.rows[rank]
    weights = weights_of(layer)
    routing = Routing(EXPERTS, CHOSEN, normalise=True)
    dispatch = Dispatch(Workspace.of(ROWS, weights, routing))
    dispatch.workspace.results.fill_(0xFF)  # no numbers
    dispatch.workspace.act.fill_(float("nan"))
    # What is held stays: both ways compute with the same experts, though not those of the table.
    layer.placement.move(TABLES[case.table][::-1])
    draw = torch.Generator().manual_seed(rank if case.dp else 99)
    hidden = torch.randn(rows, HIDDEN, generator=draw)
    real = torch.rand(rows, generator=draw) < 0.8
    part, nothing = torch.full_like(hidden, float("nan")), torch.empty(0)
    layer(hidden, part, Batch(nothing, nothing, nothing, real, (), None, None))
    wanted, counted = hidden + part if case.dp else part, load.clone()
    load.zero_()
    out = hidden.clone() if case.dp else torch.full_like(hidden, float("nan"))
    dispatch(layer, weights, out if case.dp else hidden, out, real, alike=case.alike)
    torch.testing.assert_close(out, wanted, atol=1e-5, rtol=1e-4)
    mine = slice(0, rows) if case.dp else layer.placement.shard.rows(rows)
    assert torch.equal(load, counted)
    assert load.sum() == CHOSEN * real[mine].sum()


def work(rank: int, meeting: str) -> None:
    torch.set_num_threads(1)
    dist.init_process_group("gloo", f"file://{meeting}", rank=rank, world_size=RANKS)
    for case in CASES:
        try:
            compare(case, rank)
        except AssertionError as error:
            raise AssertionError(f"rank {rank}, {case}") from error
    dist.destroy_process_group()


def test_ranks_find_what_the_exchange_by_torch_finds(tmp_path: Path) -> None:
    spawn(work, (str(tmp_path / "meeting"),), RANKS)
