"""A rank's way from the fork to readiness, phase by phase."""

from __future__ import annotations

import logging
import socket
import statistics
import time
from dataclasses import dataclass
from pathlib import Path

import psutil
import torch

from panel.server.config import ModelConfig
from panel.server.distributed import join
from panel.server.graphs import bucket_table
from panel.server.life import Life
from panel.server.loader import count_bytes, load_model
from panel.server.model import Model
from panel.server.options import Options
from panel.server.pages import HOST_LIMIT, cache_tokens
from panel.server.parallel import Shard
from panel.server.phases import Phase
from panel.server.reduction import Alone, Distributed, Reduction, SharedMemory
from panel.server.reporting import Events
from panel.server.runner import Runner, blank_decode, blank_prefill
from panel.server.shared import Shared, draft_tokens, logit_rows, max_context
from panel.server.weights import DummySource, SafetensorsSource, WeightSource

log = logging.getLogger(__name__)

Measured = list[tuple[int, str, float]]
"""(message bytes, path, microseconds)"""


@dataclass(frozen=True, slots=True)
class Place:
    """What a rank is given: where it stands, what it loads, what it shares."""

    options: Options
    config: ModelConfig
    folder: Path
    shard: Shard
    device: torch.device
    dtype: torch.dtype
    shared: Shared
    events: Events
    store: socket.socket | None
    """Listening socket of the store through which torch.distributed meets; None without it."""


@dataclass(frozen=True, slots=True)
class Ready:
    """What a rank has once it is ready."""

    runner: Runner
    pages: int
    """Pages of KV cache that may be handed out."""
    buckets: tuple[int, ...]
    memory: dict[str, int]
    collectives: Measured


def start(place: Place, life: Life) -> Ready:
    """Go through the phases from `dist_init` to `ready`."""
    options, shared, shard = place.options, place.shared, place.shard
    life.enter(Phase.DIST_INIT, f"meeting {shard.tp_size} ranks")
    shared.barrier.wait(shared.roster)
    path = _join_group(place)
    life.enter(Phase.WEIGHTS, f"loading {place.folder}, load format {options.load_format}")
    model = _load(place, life)
    life.enter(Phase.WORKSPACE, f"buffers and collectives over {path}")
    reduction, buffer_bytes = _reduction(place, path)
    collectives = _measure(place, reduction)
    life.enter(Phase.DRAFT, f"speculation {options.speculative_algorithm}, no draft weights")
    life.enter(Phase.KV_CACHE, "latent cache")
    pages, cache = _cache(place)
    runner = Runner(
        model=model,
        cache=cache,
        reduction=reduction,
        logits=shared.logits(place.config.vocab_size),
        columns=shard.part(place.config.vocab_size),
        page_size=options.page_size,
        life=life,
    )
    buckets = bucket_table(options)
    life.enter(Phase.CAPTURE, f"decode batch sizes {list(buckets) or 'off'}")
    _prepare_buckets(runner, buckets, draft_tokens(options), life)
    life.enter(Phase.WARMUP, "one prefill step")
    _run_alone(runner, place, min(options.chunked_prefill_size, max_context(options, place.config)))
    shared.barrier.wait(shared.roster)
    memory = {
        "weights": count_bytes(model),
        "workspace": buffer_bytes,
        "kv_cache": cache.nbytes,
        "graphs": 0,
    }
    sizes = ", ".join(f"{name} {size / 2**20:.1f} MiB" for name, size in memory.items())
    rss = psutil.Process().memory_info().rss
    life.enter(Phase.READY, f"memory: {sizes}; resident {rss / 2**20:.0f} MiB")
    return Ready(runner, pages, buckets, memory, collectives)


def _join_group(place: Place) -> str:
    """Join torch.distributed where it is used; return the path of the collectives."""
    chosen = place.options.allreduce_backend
    if place.shard.tp_size == 1:
        return "none"
    if chosen == "auto":
        chosen = "nccl" if place.device.type == "cuda" else "shm"
    if place.store is not None:
        shard = place.shard
        join(chosen, place.store, shard.rank, shard.tp_size, place.options.peer_timeout)
    return chosen


def _load(place: Place, life: Life) -> Model:
    options = place.options
    source: WeightSource = (
        DummySource(options.seed)
        if options.load_format == "dummy"
        else SafetensorsSource(place.folder)
    )
    context = max_context(options, place.config)
    return load_model(
        place.config, place.shard, source, place.device, place.dtype, context, life.progress
    )


def _reduction(place: Place, path: str) -> tuple[Reduction, int]:
    options, shared = place.options, place.shared
    rows = max(options.chunked_prefill_size, logit_rows(options))
    width = place.config.hidden_size
    buffer = torch.empty(rows, width, device=place.device, dtype=place.dtype)
    if path == "none":
        return Alone(buffer), buffer.nbytes
    if path == "shm":
        slots = shared.slots(place.shard.tp_size, place.dtype)
        return SharedMemory(slots, buffer, shared.barrier, shared.roster), buffer.nbytes
    return Distributed(buffer, path), buffer.nbytes


def _measure(place: Place, reduction: Reduction) -> Measured:
    """Time sums of one row, a decode batch and a prefill chunk; medians of a few."""
    measured = []
    width = place.config.hidden_size
    for rows in sorted({1, place.options.max_running_requests, place.options.chunked_prefill_size}):
        hidden = torch.zeros(rows, width, device=place.device, dtype=place.dtype)
        times = []
        for _ in range(5):
            begun = time.perf_counter()
            reduction.part(rows).zero_()
            reduction.add_sum_(hidden)
            hidden.sum().item()
            times.append(time.perf_counter() - begun)
        measured.append((hidden.nbytes, reduction.path, statistics.median(times) * 1e6))
    table = ", ".join(f"{size} B {path} {us:.0f} us" for size, path, us in measured)
    log.info("all-reduce: %s", table)
    return measured


def _cache(place: Place) -> tuple[int, torch.Tensor]:
    """Return the pages that all ranks have room for, and the cache with one page more."""
    options, config, shared = place.options, place.config, place.shared
    context = max_context(options, config)
    if place.device.type == "cuda":
        free, total = torch.cuda.mem_get_info()
        room = free - int(total * (1 - options.mem_fraction_static))
    else:
        room = int(psutil.virtual_memory().available * options.mem_fraction_static)
        room = min(room, HOST_LIMIT) // place.shard.tp_size
    tokens = options.max_total_tokens or cache_tokens(
        config,
        room=room,
        element_size=place.dtype.itemsize,
        useful=options.max_running_requests * (context + options.page_size),
    )
    pages = shared.votes.least(tokens // options.page_size, shared.roster)
    if pages < 1:
        raise MemoryError(
            f"no room for one page of KV cache: {room / 2**20:.1f} MiB free for it; "
            "lower max-running-requests or chunked-prefill-size, or raise mem-fraction-static"
        )
    # Not zeroed: pages of memory that no token ever reaches are then never backed.
    cache = torch.empty(
        config.layers,
        (pages + 1) * options.page_size,
        config.latent_width,
        device=place.device,
        dtype=place.dtype,
    )
    log.info(
        "KV cache: %d tokens, %.1f MiB of %.1f MiB allowed",
        pages * options.page_size,
        cache.nbytes / 2**20,
        room / 2**20,
    )
    return pages, cache


def _prepare_buckets(runner: Runner, buckets: tuple[int, ...], draft: int, life: Life) -> None:
    """Run each batch size once, largest first, with and without drafts."""
    for done, size in enumerate(reversed(buckets)):
        life.progress(done, len(buckets), size)
        begun = time.perf_counter()
        for width in sorted({1, 1 + draft}):
            runner(blank_decode(size, width))
        log.info("batch size %d: dry run %.1f ms", size, (time.perf_counter() - begun) * 1e3)
    life.progress(len(buckets), len(buckets))


def _run_alone(runner: Runner, place: Place, tokens: int) -> None:
    begun = time.perf_counter()
    runner(blank_prefill(tokens, place.options.page_size))
    log.info("prefill of %d tokens: %.1f ms", tokens, (time.perf_counter() - begun) * 1e3)
