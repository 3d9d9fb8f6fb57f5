"""Measure the tiles of `skinny_matmul` on this GPU. Never call it while a graph is captured."""

from __future__ import annotations

from collections.abc import Iterable
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from operator import itemgetter

import torch

from panel.kernels.arrivals import arrival_counts
from panel.kernels.skinny import skinny_matmul
from panel.kernels.skinny_tiles import Table, Tile, as_table, candidates, key
from panel.kernels.timing import microseconds

_CACHE_BYTES = 192 << 20
"""More than the L2 cache of any GPU: weights come from memory, as they do in a model."""


def tune(weights: Iterable[torch.Tensor], rows: Iterable[int], known: Table | None = None) -> Table:
    """Return the fastest tile for weights shaped and laid out like those given, [depth, columns].

    `rows` are the numbers of rows to tune for. Keys that `known` has are taken from there. Give the
    result to `configure`, the same on every rank.
    """
    table = dict(known or {})
    for weight in weights:
        copies = None
        for count in rows:
            name = key(count, weight)
            if name not in table:
                copies = rotating(weight) if copies is None else copies
                table |= as_table({name: min(measure(count, copies), key=itemgetter(0))[1]})
    return table


def rotating(weight: torch.Tensor) -> list[torch.Tensor]:
    """Return random weights laid out like `weight`, together larger than the cache."""
    count = max(2, -(-_CACHE_BYTES // weight.nbytes))
    return [torch.randn_like(weight) for _ in range(count)]


def measure(rows: int, weights: list[torch.Tensor]) -> list[tuple[float, Tile]]:
    """Return the microseconds of each candidate, on weights of one shape in turn."""
    weight = weights[0]
    depth, columns = weight.shape
    arrival_counts(weight.device)
    x = torch.randn((rows, depth), dtype=weight.dtype, device=weight.device)
    out = torch.empty((rows, columns), dtype=x.dtype, device=x.device)
    norm = (torch.ones_like(x[0]), torch.ones((), dtype=x.dtype, device=x.device))

    def call(tile: Tile, weight: torch.Tensor) -> torch.Tensor:
        return skinny_matmul(x, weight, norm=norm, out=out, tile=tile)

    tiles = candidates(rows, weight)
    compiled = {(tile.columns, tile.depth, tile.split > 1): tile for tile in tiles}
    with ThreadPoolExecutor(8) as pool:
        list(pool.map(lambda tile: call(tile, weight), compiled.values()))
    return [(microseconds([partial(call, tile, each) for each in weights]), tile) for tile in tiles]
