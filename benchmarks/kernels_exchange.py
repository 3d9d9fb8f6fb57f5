"""Check and time the exchange of rows between ranks and their experts, in bf16.

`python benchmarks/kernels_exchange.py` on one otherwise idle GPU, from the repository root; on more
of them `torchrun --nproc-per-node 2 benchmarks/kernels_exchange.py`. Shape: DeepSeek-V2-Lite,
hidden 2048, 64 experts of 1408 top-6, shared experts of 2816; each rank has rows of its own. The
kernels are held against their references for two ranks and for eight, whatever there is; a whole
layer, launch by launch and as a graph replays it, against all experts on one GPU. Rates count the
bytes that must be read and written.
"""

from __future__ import annotations

import os
import sys
import time
from contextlib import redirect_stdout
from functools import partial
from pathlib import Path
from statistics import median

import torch
import torch.distributed as dist

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from benchmarks.kernels_attention import GPU, Report, peak, poisoned, rand
from panel.kernels.arrivals import arrival_counts
from panel.kernels.choose_slots import Slots, choose_slots, choose_slots_reference
from panel.kernels.experts import ExpertWeights, Workspace, moe
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
from panel.kernels.timing import microseconds
from panel.server.cuda.capture import capture
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

HIDDEN, EXPERTS, COLUMNS, SHARED, CHOSEN = 2048, 64, 1408, 2816, 6
ROUTING = Routing(EXPERTS, CHOSEN)
MOST = 4096


def shard() -> Shard:
    rank, ranks = dist.get_rank(), dist.get_world_size()
    return Shard(rank, ranks, ranks, dispatching=True, dp_attention=True, shared_sharded=False)


def choices(rows: int, ranks: int) -> tuple[torch.Tensor, torch.Tensor]:
    """Return slots of all ranks and weights [rows, chosen]; a few rows are padding."""
    slots = torch.rand(rows, EXPERTS, device=GPU).argsort(dim=1)[:, :CHOSEN].to(torch.int32)
    slots[7::11] = -1
    slots[3::5] %= EXPERTS // ranks
    return slots, torch.rand(rows, CHOSEN, device=GPU)


def check_choice(report: Report) -> None:
    replicas = [*range(EXPERTS), 0, 1, 2, 0, 1, 5, 6, 7]
    for rows, experts in ((1, list(range(EXPERTS))), (37, replicas), (2000, replicas)):
        place = Placement.of(experts, Shard(1, 8, 8, dispatching=True), EXPERTS, None).to(GPU)
        slots = Slots(place.experts, place.period, place.turn)
        logits, real = torch.randn(rows, EXPERTS, device=GPU), torch.rand(rows, device=GPU) < 0.8
        ours = torch.full((rows, CHOSEN), -7, dtype=torch.int32, device=GPU)
        weights = poisoned(rows, CHOSEN, dtype=torch.float32)
        counts = torch.zeros(EXPERTS, dtype=torch.int64, device=GPU)
        choose_slots(logits, None, ROUTING, slots, real, ours, weights, counts)
        wanted = choose_slots_reference(logits, None, ROUTING, slots, real)
        same = torch.equal(ours, wanted[0]) and torch.equal(counts, wanted[2])
        note = "equal" if same else "NOT EQUAL"
        report.check(f"choice of {rows} rows, slots {note}", weights, wanted[1])
        if not same:
            report.failed.append(f"choice of {rows} rows: slots or counts")


def check_kernels(report: Report) -> None:
    for rows, ranks in ((1, 2), (37, 2), (128, 8), (MOST, 8)):
        (slots, weights), normed = choices(rows, ranks), rand(rows, HIDDEN)
        each = EXPERTS // ranks
        form = Lines(HIDDEN, CHOSEN, normed.dtype)
        sent = places_reference(slots, ranks, each)
        places = find_places(slots, ranks, each)
        name = f"{rows} rows, {ranks} ranks"
        if places.counts.tolist() != [len(to) for to in sent]:
            report.failed.append(f"{name}: counts")
        lines = poisoned(sum(places.counts.tolist()), form.width)
        permute(normed, slots, weights, places, lines)
        found = unpack_reference(form, lines, 0, EXPERTS)
        for part, ours, wanted in zip(
            ("rows", "weights", "slots"),
            found,
            permute_reference(normed, slots, weights, sent),
            strict=True,
        ):
            report.check(f"{name}, {part} sent", ours + 1, wanted + 1, 1e-6)
        answers, residual = rand(lines.shape[0], HIDDEN), rand(rows, HIDDEN)
        out = residual.clone()
        unpermute(answers, places, ranks, out)
        report.check(f"{name}, added", out, unpermute_reference(answers, sent, residual))
        again = residual.clone()
        unpermute(answers, places, ranks, again)
        if not torch.equal(out, again):
            report.failed.append(f"{name}: another sum the second time")
        for height in (16, 128):
            groups = Groups.of(lines.shape[0], ROUTING, each, GPU)
            taken = poisoned(lines.shape[0], HIDDEN)
            unpack(form, lines, each, each, height, taken, groups)
            local = unpack_reference(form, lines, each, each)
            cells, tiles = group_reference(local[2].tolist(), height)
            good = (
                torch.equal(taken, local[0])
                and torch.equal(groups.weights, local[1])
                and torch.equal(groups.slots, local[2])
                and groups.cells[: len(cells)].tolist() == cells
                and int(groups.total) == len(tiles)
                and [tuple(t) for t in groups.tiles[:, : len(tiles)].t().tolist()] == tiles
            )
            print(f"{'ok  ' if good else 'BAD '} {name}, unpacked into tiles of {height}")
            if not good:
                report.failed.append(f"{name}: unpacked")


def layer_of() -> tuple[ExpertsDispatched, ExpertWeights]:
    """Return this rank's part of a layer and all of it, the same on every rank."""
    place = shard()
    torch.manual_seed(5)
    whole = ExpertWeights(
        gain=(1 + rand(HIDDEN, scale=0.1)) * HIDDEN**0.5,
        floor=torch.tensor((HIDDEN * 1e-6) ** 0.5, dtype=torch.bfloat16, device=GPU),
        route=rand(HIDDEN, EXPERTS, scale=HIDDEN**-0.5),
        gate_up=rand(EXPERTS, HIDDEN, 2 * COLUMNS, scale=HIDDEN**-0.5),
        down=rand(EXPERTS, COLUMNS, HIDDEN, scale=COLUMNS**-0.5),
        shared_gate_up=rand(HIDDEN, 2 * SHARED, scale=HIDDEN**-0.5),
        shared_down=rand(SHARED, HIDDEN, scale=SHARED**-0.5),
    )
    counts = torch.zeros(EXPERTS, dtype=torch.int64, device=GPU)
    placement = Placement.of(range(EXPERTS), place, EXPERTS, counts).to(GPU)
    routing = RoutingShape(
        scoring="softmax",
        correction=False,
        groups=1,
        groups_per_token=1,
        group_best=1,
        experts_per_token=CHOSEN,
        normalise=False,
        scale=1.0,
    )
    own = placement.own
    layer = ExpertsDispatched(
        RMSNorm(whole.gain, whole.floor),
        Router(routing, None),
        placement,
        whole.route,
        RoutedExperts(whole.gate_up[own], whole.down[own]),
        SharedExperts(whole.shared_gate_up, whole.shared_down, None),
        DistributedExchange("nccl", place.tp_size),
        None,
    )
    return layer, whole


def check_layer(report: Report) -> None:
    layer, whole = layer_of()
    weights = weights_of(layer)
    dispatch = Dispatch(Workspace.of(MOST, weights, ROUTING))
    workspace = Workspace.of(MOST, whole, ROUTING)
    torch.manual_seed(dist.get_rank())
    load = layer.placement.load
    assert load is not None
    for rows in (1, 8, 128, 700, MOST):
        x, real = rand(rows, HIDDEN, scale=0.01), torch.rand(rows, device=GPU) < 0.9
        wanted, counts = torch.empty_like(x), torch.zeros_like(load)
        moe(x, whole, workspace, wanted, residual=x, real=real, counts=counts)
        results = []
        for alike in (True, False, True):
            out = x.clone()
            load.zero_()
            dispatch(layer, weights, out, out, real, alike=alike)
            report.check(f"layer of {rows} rows, alike {alike}", out - x, wanted - x)
            results.append(out)
            if not torch.equal(load, counts):
                report.failed.append(f"layer of {rows} rows: counts")
        if not torch.equal(results[0], results[2]):
            report.failed.append(f"layer of {rows} rows: another result the second time")
        if rows > 128:
            continue
        held = x.clone()
        graph, _ = capture(partial(dispatch, layer, weights, held, held, real, alike=True), None)
        for _ in range(2):
            held.copy_(x)
            graph.replay()
            torch.cuda.synchronize()
            same = torch.equal(held, results[0])
            print(f"{'ok  ' if same else 'BAD '} layer of {rows} rows, as a graph")
            if not same:
                report.failed.append(f"layer of {rows} rows: another result as a graph")


def time_kernels(report: Report) -> None:
    for rows, ranks in ((1, 2), (32, 2), (128, 2), (128, 8), (8192, 2), (8192, 8)):
        (slots, weights), each = choices(rows, ranks), EXPERTS // ranks
        size = rows * HIDDEN * 2
        form = Lines(HIDDEN, CHOSEN, torch.bfloat16)
        many = range(max(2, min(40, 200_000_000 // (2 * size))))
        inputs = [rand(rows, HIDDEN) for _ in many]
        places = find_places(slots, ranks, each)
        count = sum(places.counts.tolist())
        spent = microseconds([partial(find_places, slots, ranks, each)])
        report.timed(f"find places, {rows} rows, {ranks} ranks", spent, slots.nbytes)
        for name, where, sent in (("sorted", places, count), ("as they are", None, rows)):
            outputs = [form.empty(sent, GPU) for _ in many]
            calls = [
                partial(permute, x, slots, weights, where, lines)
                for x, lines in zip(inputs, outputs, strict=True)
            ]
            moved = size + outputs[0].nbytes
            report.timed(f"permute {rows} rows, {ranks} ranks, {name}", microseconds(calls), moved)
            back = count if where is not None else ranks * rows
            answers = [rand(back, HIDDEN) for _ in many]
            added = [
                partial(unpermute, answer, where, ranks, x)
                for answer, x in zip(answers, inputs, strict=True)
            ]
            moved = 2 * size + back * HIDDEN * 2
            report.timed(
                f"unpermute {rows} rows, {ranks} ranks, {name}", microseconds(added), moved
            )
        came = [form.empty(ranks * rows, GPU) for _ in many[: max(2, len(many) // ranks)]]
        for lines in came:
            permute(inputs[0], slots, weights, None, lines[:rows])
            lines.copy_(lines[:rows].repeat(ranks, 1))
        groups = Groups.of(ranks * rows, ROUTING, each, GPU)
        taken = torch.empty(ranks * rows, HIDDEN, dtype=torch.bfloat16, device=GPU)
        height = 16 if ranks * rows <= 256 else 128
        calls = [partial(unpack, form, lines, 0, each, height, taken, groups) for lines in came]
        moved = came[0].nbytes + taken.nbytes
        report.timed(f"unpack {ranks * rows} lines of {ranks} ranks", microseconds(calls), moved)


def time_layer(report: Report) -> None:
    layer, whole = layer_of()
    ranks = dist.get_world_size()
    layers = [weights_of(layer)] * 8
    dispatch = Dispatch(Workspace.of(8192, layers[0], ROUTING))
    workspace = Workspace.of(128, whole, ROUTING)
    expert = 3 * HIDDEN * COLUMNS * 2
    for rows in (1, 8, 32, 128):
        x, real = rand(rows, HIDDEN), torch.ones(rows, dtype=torch.bool, device=GPU)
        out = torch.empty_like(x)
        calls = [partial(dispatch, layer, one, x, x, real, alike=True) for one in layers]
        spent = microseconds(calls)
        # Random choices of all ranks' rows.
        read = EXPERTS // ranks * (1 - (1 - CHOSEN / EXPERTS) ** (ranks * rows)) * expert
        moved = int(read) + 3 * HIDDEN * SHARED * 2
        report.timed(f"layer, {ranks} x {rows} rows, in a graph", spent, moved)
        alone = microseconds([partial(moe, x, whole, workspace, out)] * 8)
        print(f"{'':12}all experts on one GPU, its own {rows} rows: {alone:.2f} us")
    for rows in (512, 8192):
        x, real = rand(rows, HIDDEN), torch.ones(rows, dtype=torch.bool, device=GPU)
        times = []
        for _ in range(6):
            torch.cuda.synchronize()
            began = time.perf_counter()
            dispatch(layer, layers[0], x, x, real, alike=False)
            torch.cuda.synchronize()
            times.append((time.perf_counter() - began) * 1e6)
        spent = median(times[1:])
        rate = 6 * HIDDEN * rows * (CHOSEN * COLUMNS + SHARED) / spent / 1e6
        print(f"layer, {ranks} x {rows} rows, with sizes: {spent:.0f} us, {rate:.0f} TFLOP/s")


PARTS = (peak, check_choice, check_kernels, check_layer, time_kernels, time_layer)


def main() -> int:
    """Do all parts; 1 where a check failed. Only the first rank tells what it finds."""
    if "RANK" in os.environ:
        torch.cuda.set_device(int(os.environ["LOCAL_RANK"]))
        dist.init_process_group("nccl")
    else:
        alone = dist.HashStore()  # type: ignore[attr-defined]
        dist.init_process_group("nccl", store=alone, rank=0, world_size=1)
    rank, report = dist.get_rank(), Report(time.monotonic() + 240)
    arrival_counts(GPU)
    with Path(os.devnull).open("w") as nowhere, redirect_stdout(nowhere if rank else sys.stdout):
        for part in PARTS:
            report.part(part)
    for failure in report.failed:
        print(f"FAILED rank {rank}: {failure}", flush=True)
    if not report.failed:
        print(f"rank {rank}: all checks passed", flush=True)
    dist.destroy_process_group()
    return 1 if report.failed else 0


if __name__ == "__main__":
    sys.exit(main())
