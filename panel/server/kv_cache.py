"""The tensor that holds keys and values."""

from __future__ import annotations

import logging

import psutil
import torch

from panel.server.distributed import ranks_per_gpu
from panel.server.memory import HOST_LIMIT
from panel.server.place import Place

log = logging.getLogger(__name__)


def allocate(place: Place) -> tuple[int, torch.Tensor]:
    """Return the pages that all ranks have room for, and the cache with one page more.

    The cache has shape [layers, slots, entry]; `MemoryError` without room for one page.
    """
    options, config, shared = place.options, place.config, place.shared
    room = _room(place)
    pages = shared.votes.least(place.demand.pages(room), shared.roster)
    if pages < 1:
        raise MemoryError(
            f"no room for one page of KV cache: {room / 2**20:.1f} MiB free for it; "
            "lower max-running-requests or chunked-prefill-size, or raise mem-fraction-static"
        )
    # Not zeroed: pages of memory that no token ever reaches are then never backed.
    cache = torch.empty(
        config.layers,
        (pages + 1) * options.page_size,
        place.shard.cache_width(config.attention),
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


def _room(place: Place) -> int:
    fraction = place.options.mem_fraction_static
    if place.device.type == "cuda":
        free, total = torch.cuda.mem_get_info()
        return (free - int(total * (1 - fraction))) // ranks_per_gpu(place.shard.tp_size)
    room = int(psutil.virtual_memory().available * fraction)
    return min(room, HOST_LIMIT) // place.shard.tp_size
