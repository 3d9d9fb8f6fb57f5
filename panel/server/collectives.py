"""Which collectives the ranks use, and how fast they are."""

from __future__ import annotations

import logging
import statistics
import time
from collections.abc import Callable

import torch

from panel.server.distributed import backend_of, join, ranks_per_gpu
from panel.server.exchange import DistributedExchange, Exchange, SharedMemoryExchange
from panel.server.experts import RoutedExperts
from panel.server.location import slot_count
from panel.server.nccl import describe_nccl
from panel.server.place import Place

log = logging.getLogger(__name__)

Measured = list[tuple[int, str, float]]
"""(message bytes, path, microseconds)"""


def join_group(place: Place) -> None:
    """Join torch.distributed where it is used."""
    if place.store is None:
        return
    shard = place.shard
    backend = backend_of(place.device, shard.tp_size)
    join(backend, place.store, shard.rank, shard.tp_size, place.options.peer_timeout)
    if place.device.type == "cuda" and shard.rank == 0:
        log.info("torch.distributed over %s; %s", backend, describe_nccl())
        if ranks_per_gpu(shard.tp_size) > 1:
            log.warning("ranks share GPUs and wait for each other's time slices: for tests only")


def make_exchange(place: Place) -> tuple[Exchange | None, int]:
    """Return the all-to-all, None without it, and the bytes that it takes."""
    shared, demand = place.shared, place.demand
    match demand.exchange_path:
        case "none":
            return None, 0
        case "shm":
            rows, counts = shared.exchange(demand, place.dtype)
            exchange = SharedMemoryExchange(rows, counts, shared.barrier, shared.roster)
            return exchange, rows.nbytes // place.shard.tp_size
        case path:
            return DistributedExchange(path, place.shard.tp_size), 0


def measure_exchange(place: Place, exchange: Exchange | None) -> Measured:
    """Time the all-to-all for one row, a decode batch and a prefill chunk; medians of a few."""
    if exchange is None:
        return []
    measured = []
    width = place.config.hidden_size
    for rows in sorted({1, place.options.max_running_requests, place.options.chunked_prefill_size}):
        hidden = torch.zeros(rows, width, device=place.device, dtype=place.dtype)
        sent = hidden if place.shard.dp_attention else hidden[place.shard.rows(rows)]
        us = median_us(_trip(place, exchange, sent), hidden)
        measured.append((sent.nbytes, f"{exchange.path} all-to-all", us))
    log.info("%s", ", ".join(f"{size} B {path} {us:.0f} us" for size, path, us in measured))
    return measured


def _trip(place: Place, exchange: Exchange, sent: torch.Tensor) -> Callable[[], None]:
    """Return a dispatch of `sent` to as many ranks as a token can have, and back."""
    rows, width = sent.shape
    slots = slot_count(place.config, place.options) // place.shard.ep_size
    idle = RoutedExperts(sent.new_zeros(slots, width, 0), sent.new_zeros(slots, 0, width))
    weights = sent.new_zeros(rows, place.shard.ep_size, slots)
    weights[:, : place.config.experts.routing.experts_per_token, 0] = 1
    flat = weights.flatten(1)
    part = torch.zeros_like(sent)
    return lambda: exchange(sent, flat, idle, part)


def median_us(work: Callable[[], object], hidden: torch.Tensor) -> float:
    """Return the median time of five calls, each until `hidden` is there, in microseconds."""
    times = []
    for _ in range(5):
        begun = time.perf_counter()
        work()
        hidden.sum().item()
        times.append(time.perf_counter() - begun)
    return statistics.median(times) * 1e6
