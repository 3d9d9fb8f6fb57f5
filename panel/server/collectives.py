"""Which collectives the ranks use, and how fast they are."""

from __future__ import annotations

import logging
import statistics
import time
from collections.abc import Callable

import torch

from panel.server.distributed import join
from panel.server.exchange import DistributedExchange, Exchange, SharedMemoryExchange
from panel.server.experts import RoutedExperts
from panel.server.location import slot_count
from panel.server.place import Place
from panel.server.reduction import Alone, Distributed, Reduction, SharedMemory
from panel.server.sizes import step_rows

log = logging.getLogger(__name__)

Measured = list[tuple[int, str, float]]
"""(message bytes, path, microseconds)"""


def join_group(place: Place) -> None:
    """Join torch.distributed where it is used."""
    if place.store is not None:
        backend = "nccl" if place.device.type == "cuda" else "gloo"
        shard = place.shard
        join(backend, place.store, shard.rank, shard.tp_size, place.options.peer_timeout)


def make_reduction(place: Place) -> tuple[Reduction, int]:
    """Return the sums of a layer and the bytes that they take."""
    shared, demand = place.shared, place.demand
    width = place.config.hidden_size
    buffer = torch.empty(step_rows(place.options), width, device=place.device, dtype=place.dtype)
    match demand.sum_path:
        case "none":
            return Alone(buffer), buffer.nbytes
        case "shm":
            slots = shared.slots(place.shard.tp_size, place.dtype)
            reduction = SharedMemory(slots, buffer, shared.barrier, shared.roster)
            return reduction, buffer.nbytes + slots.nbytes // place.shard.tp_size
        case path:
            return Distributed(buffer, path), buffer.nbytes


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


def measure(place: Place, reduction: Reduction, exchange: Exchange | None) -> Measured:
    """Time the collectives for one row, a decode batch and a prefill chunk; medians of a few."""
    measured = []
    width = place.config.hidden_size
    for rows in sorted({1, place.options.max_running_requests, place.options.chunked_prefill_size}):
        hidden = torch.zeros(rows, width, device=place.device, dtype=place.dtype)

        def add_up(hidden: torch.Tensor = hidden) -> None:
            reduction.part(hidden.shape[0]).zero_()
            reduction.add_sum_(hidden)

        measured.append((hidden.nbytes, reduction.path, _median_us(add_up, hidden)))
        if exchange is not None:
            sent = hidden if place.shard.dp_attention else hidden[place.shard.rows(rows)]
            path = f"{exchange.path} all-to-all"
            measured.append((sent.nbytes, path, _median_us(_trip(place, exchange, sent), hidden)))
    table = ", ".join(f"{size} B {path} {us:.0f} us" for size, path, us in measured)
    log.info("collectives: %s", table)
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


def _median_us(work: Callable[[], None], hidden: torch.Tensor) -> float:
    times = []
    for _ in range(5):
        begun = time.perf_counter()
        work()
        hidden.sum().item()
        times.append(time.perf_counter() - begun)
    return statistics.median(times) * 1e6
