"""How the products of `skinny_matmul` are divided, by shape: a rule, or what was measured."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass

import torch


@dataclass(frozen=True, slots=True)
class Tile:
    """What one program does."""

    columns: int
    """Columns of the weight, a power of two."""
    depth: int
    """Rows of the weight read at a time, a power of two."""
    split: int
    """Parts of the depth, each with its own program."""
    warps: int
    stages: int
    """Loads in flight, each of `depth` rows; 1: straight into registers."""


Table = dict[str, dict[str, int]]
"""Tiles by `key`, as JSON holds them."""

_PROGRAMS = 512
"""About four for each multiprocessor of a large GPU."""
_tiles: dict[str, Tile] = {}


def key(rows: int, weight: torch.Tensor) -> str:
    """Return what a tile is kept under: rows rounded up, shape, dtype and contiguous dimension."""
    depth, columns = weight.shape
    dtype = str(weight.dtype).removeprefix("torch.")
    return f"{bucket(rows)}x{depth}x{columns} {dtype} {'depth' if _deep(weight) else 'columns'}"


def bucket(rows: int) -> int:
    """Return 1, 16, 32 or 64: rows that are computed together."""
    return next((size for size in (1, 16, 32) if rows <= size), 64)


def tile_for(rows: int, weight: torch.Tensor) -> Tile:
    """Return the tile for a weight [depth, columns]: the measured one, or one by rule."""
    return _tiles.get(key(rows, weight)) or default_tile(rows, weight)


def default_tile(rows: int, weight: torch.Tensor) -> Tile:
    """Return a tile that gives a large GPU enough programs."""
    width, deep, warps, stages = _shapes(rows, weight)[0]
    depth, columns = weight.shape
    blocks = -(-columns // width)
    split = 1
    while blocks * split * 2 <= _PROGRAMS and depth >= deep * split * 2:
        split *= 2
    return Tile(width, deep, split, warps, stages)


def candidates(rows: int, weight: torch.Tensor) -> list[Tile]:
    """Return the tiles worth measuring; those that differ in `split` alone compile once."""
    depth, columns = weight.shape
    result = [
        Tile(width, deep, split, warps, stages)
        for width, deep, warps, stages in _shapes(rows, weight)
        for split in (1, 2, 4, 8, 16)
        if 100 <= -(-columns // width) * split <= 1400 and depth >= deep * split
    ]
    return [*result, default_tile(rows, weight)]


def _shapes(rows: int, weight: torch.Tensor) -> tuple[tuple[int, int, int, int], ...]:
    """Return columns, depth, warps and stages worth trying, the best guess first."""
    if _deep(weight):
        return {
            1: ((32, 256, 4, 2), (16, 512, 4, 2), (16, 256, 4, 1), (32, 256, 8, 1)),
            16: ((32, 128, 4, 4), (32, 256, 4, 3), (64, 128, 4, 3), (64, 64, 4, 4)),
            32: ((32, 128, 4, 4), (64, 128, 4, 3), (64, 64, 4, 4)),
            64: ((64, 64, 4, 4), (64, 128, 4, 3), (128, 64, 4, 3)),
        }[bucket(rows)]
    return {
        1: ((64, 128, 4, 2), (64, 64, 4, 3), (128, 64, 4, 2), (32, 256, 4, 2)),
        16: ((64, 64, 4, 4), (64, 128, 4, 3), (128, 64, 4, 4), (32, 128, 4, 4)),
        32: ((64, 64, 4, 4), (64, 128, 4, 3), (128, 64, 4, 4)),
        64: ((64, 64, 4, 4), (128, 64, 4, 3), (64, 128, 4, 3)),
    }[bucket(rows)]


def _deep(weight: torch.Tensor) -> bool:
    return weight.stride(0) == 1


def configure(table: Mapping[str, Mapping[str, int]]) -> None:
    """Use measured tiles from now on; every rank must be given the same."""
    _tiles.update({name: Tile(**tile) for name, tile in table.items()})


def as_table(tiles: Mapping[str, Tile]) -> Table:
    """Return tiles as JSON holds them."""
    return {name: asdict(tile) for name, tile in tiles.items()}
