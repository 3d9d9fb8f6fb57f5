"""The sums of a launch: which paths there are, how fast they are, which of them each size takes."""

from __future__ import annotations

import json
import logging
import os
from pathlib import Path

import torch

from panel.server.collectives import Measured, median_us
from panel.server.distributed import backend_of, ranks_per_gpu
from panel.server.figures import agreed, cache_file, facts_of
from panel.server.nccl import describe_nccl
from panel.server.place import Place
from panel.server.reduction import Alone, Distributed, Fastest, Reduction, SharedMemory
from panel.server.sizes import logit_rows, step_rows
from panel.server.sum_table import SumTable, Timing, measured_rows, read_table, write_table

log = logging.getLogger(__name__)

_CALLS = 50
"""Sums in the graph by which a GPU is timed: they make little of how much later one rank starts."""


def make_sums(place: Place) -> tuple[Reduction, int, Measured]:
    """Return the sums over all ranks, the bytes that they take, and how long each path takes.

    All ranks call this together, and choose alike.
    """
    width = place.config.hidden_size
    buffer = torch.empty(step_rows(place.options), width, device=place.device, dtype=place.dtype)
    paths, more = _paths(place, buffer)
    if not paths:
        return Alone(buffer), buffer.nbytes, []
    table = _table(place, paths)
    row = width * place.dtype.itemsize
    if place.shard.rank == 0:
        for line in table.lines(row):
            log.info("%s", line)
    several = len(paths) > 1
    reduction = Fastest(buffer, paths, table) if several else next(iter(paths.values()))
    measured = [(timing.rows * row, timing.path, timing.us) for timing in table.timings]
    return reduction, buffer.nbytes + more, measured


def _paths(place: Place, buffer: torch.Tensor) -> tuple[dict[str, Reduction], int]:
    """Return the paths that these ranks have, and the bytes that they take beside `buffer`."""
    shared, ranks = place.shared, place.shard.tp_size
    paths: dict[str, Reduction] = {}
    match place.demand.sum_path:
        case "none":
            return {}, 0
        case "shm":
            slots = shared.slots(ranks, place.dtype)
            paths["shm"] = SharedMemory(slots, buffer, shared.barrier, shared.roster)
            return paths, slots.nbytes // ranks
        case "auto" | "peer" if (peers := _peers(place, buffer)) is not None:
            paths["peer"] = peers
    if "peer" not in paths or ranks_per_gpu(ranks) == 1:
        path = backend_of(place.device, ranks)
        paths[path] = Distributed(buffer, path)
    return paths, place.demand.box if "peer" in paths else 0


def _peers(place: Place, buffer: torch.Tensor) -> Reduction | None:
    """Return the sums over peers; None, with a line that says why, where they may be left out."""
    # Imported where there is a GPU only: triton has no wheels for some CPU machines.
    from panel.server.cuda.peers import PeerMemory, PeersError, open_boxes, try_out

    shared, demand = place.shared, place.demand
    wanted = place.options.allreduce_backend == "peer"
    if not wanted and os.environ.get("NCCL_P2P_DISABLE", "0") != "0":
        log.info("no sums over peers: NCCL_P2P_DISABLE is set")
        return None
    try:
        boxes = open_boxes(
            demand.peer_rows,
            demand.box,
            shared.handles(),
            shared.votes,
            shared.roster,
            place.device,
        )
        reduction = PeerMemory(buffer, boxes)
        try_out(reduction, place.shard.tp_size, shared.votes, shared.roster)
    except PeersError as error:
        if wanted:
            raise RuntimeError(f"allreduce-backend peer: {error}; take nccl") from None
        log.warning("no sums over peers: %s", error)
        return None
    return reduction


def _table(place: Place, paths: dict[str, Reduction]) -> SumTable:
    """Return the times of all paths: those kept on disk, else measured and kept."""
    sizes = _sizes(place)
    file, key = _file(place), _key(place, sizes, paths)
    if file is not None:
        kept = agreed(place, read_table(file, key, paths))
        if kept is not None:
            log.info("times of the sums are those in %s", file)
            return kept
    calls = _CALLS if len(paths) > 1 else 2
    timings = [
        Timing(rows, path, _slowest_us(place, paths[path], rows, calls))
        for rows in sizes
        for path in _rivals(place, paths, rows)
    ]
    table = SumTable(tuple(timings))
    if file is not None and place.shard.rank == 0:
        write_table(file, key, table)
    return table


def _sizes(place: Place) -> tuple[int, ...]:
    """Return the numbers of rows to measure."""
    options = place.options
    decode, chunk = options.max_running_requests, options.chunked_prefill_size
    if place.device.type == "cpu":
        return tuple(sorted({1, decode, chunk}))
    return measured_rows(decode, logit_rows(options), chunk, place.demand.peer_rows)


def _rivals(place: Place, paths: dict[str, Reduction], rows: int) -> list[str]:
    """Return the paths that may serve a number of rows."""
    if "peer" not in paths or len(paths) == 1:
        return list(paths)
    if rows > place.demand.peer_rows:
        return [path for path in paths if path != "peer"]
    return ["peer"] if place.options.allreduce_backend == "peer" else list(paths)


def _slowest_us(place: Place, reduction: Reduction, rows: int, calls: int) -> float:
    """Return the time of a sum on the rank where it takes longest, the same on all ranks."""
    hidden = torch.zeros(rows, place.config.hidden_size, device=place.device, dtype=place.dtype)
    reduction.part(rows).zero_()

    def add_up() -> None:
        reduction.add_sum_(hidden)

    if place.device.type == "cuda":
        from panel.kernels.timing import microseconds

        us = microseconds([add_up] * calls)
    else:
        us = median_us(add_up, hidden)
    return max(place.shared.votes.all(round(us * 1e3), place.shared.roster)) / 1e3


def _file(place: Place) -> Path | None:
    """Return where the table is kept; measuring CPU ranks takes no longer than reading would."""
    if place.options.collectives_file is not None:
        return Path(place.options.collectives_file)
    if place.device.type == "cpu":
        return None
    return cache_file("collectives.json")


def _key(place: Place, sizes: tuple[int, ...], paths: dict[str, Reduction]) -> str:
    """Return what the times depend on, in words that say it to whoever reads the file."""
    gpu = place.device.type == "cuda"
    driver = Path("/proc/driver/nvidia/version")
    ranks = place.shard.tp_size
    facts = {
        "driver": driver.read_text().splitlines()[0] if gpu and driver.exists() else None,
        "nccl": describe_nccl() if gpu else None,
        "ranks": ranks,
        "ranks a GPU": ranks_per_gpu(ranks) if gpu else None,
        "row": f"{place.config.hidden_size} {place.dtype}",
        "rows": sizes,
        "paths": [*paths],
        "asked for": place.options.allreduce_backend,
    }
    return json.dumps(facts_of(place.device) | facts)
