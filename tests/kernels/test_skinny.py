"""Products of few rows against float32, in Triton's interpreter."""

from __future__ import annotations

import json

import pytest
import torch

from tests.kernels import interpreting  # noqa: F401

# isort: split
from panel.kernels.arrivals import arrival_counts
from panel.kernels.skinny import skinny_matmul, skinny_matmul_reference
from panel.kernels.skinny_tiles import (
    Tile,
    as_table,
    candidates,
    configure,
    default_tile,
    key,
    tile_for,
)

CPU = torch.device("cpu")
FLOOR = torch.tensor((96 * 1e-6) ** 0.5)


def weights(depth: int, columns: int, dtype: torch.dtype, deep: bool) -> torch.Tensor:
    if deep:
        return (torch.randn(columns, depth) * depth**-0.5).to(dtype).t()
    return (torch.randn(depth, columns) * depth**-0.5).to(dtype)


def close(ours: torch.Tensor, reference: torch.Tensor) -> bool:
    error = (ours.float() - reference).norm() / reference.norm()
    return bool(error < (1e-5 if ours.dtype is torch.float32 else 2e-3))


@pytest.mark.parametrize("dtype", [torch.float32, torch.float16])
@pytest.mark.parametrize("deep", [False, True], ids=["columns", "depth"])
@pytest.mark.parametrize("rows", [1, 3, 20])
@pytest.mark.parametrize("split", [1, 3])
def test_product(dtype: torch.dtype, deep: bool, rows: int, split: int) -> None:
    x = torch.randn(rows, 96).to(dtype)
    weight = weights(96, 72, dtype, deep)
    norm = (torch.rand(96, dtype=dtype) * 96**0.5, FLOOR.to(dtype))
    bias = torch.randn(72).to(dtype)
    residual = torch.randn(rows, 72).to(dtype)
    wanted = skinny_matmul_reference(x, weight, norm=norm, bias=bias, residual=residual)
    tile = Tile(columns=32, depth=16, split=split, warps=4, stages=2)
    ours = skinny_matmul(x, weight, norm=norm, bias=bias, residual=residual, tile=tile)
    assert ours is residual
    assert close(ours, wanted)
    assert not arrival_counts(CPU).any()


def test_plain_product_in_another_type() -> None:
    x, weight = torch.randn(2, 50).half(), weights(50, 33, torch.float16, False)
    out = torch.full((2, 33), float("nan"))
    skinny_matmul(x, weight, out=out)
    assert close(out.half(), skinny_matmul_reference(x, weight))


def test_more_rows_than_one_program_takes() -> None:
    x, weight = torch.randn(70, 32), weights(32, 16, torch.float32, True)
    assert close(skinny_matmul(x, weight), skinny_matmul_reference(x, weight))


def test_a_nan_stays_in_its_row() -> None:
    x, weight = torch.randn(3, 32), weights(32, 16, torch.float32, True)
    x[1] = float("nan")
    norm = (torch.ones(32), FLOOR)
    ours = skinny_matmul(x, weight, norm=norm)
    assert ours.isfinite().all(dim=1).tolist() == [True, False, True]


def test_large_values_stay_in_float16_s_range() -> None:
    """A gain holds the root of the depth: times a hidden state it could overflow."""
    x = torch.full((2, 256), 6000.0, dtype=torch.float16)
    weight = weights(256, 16, torch.float16, True)
    norm = (torch.full((256,), 16.0, dtype=torch.float16), FLOOR)
    ours = skinny_matmul(x, weight, norm=norm)
    assert close(ours, skinny_matmul_reference(x, weight, norm=norm))


def test_measured_tiles_are_used(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("panel.kernels.skinny_tiles._tiles", {})
    weight = weights(2048, 3648, torch.float32, True)
    assert tile_for(5, weight) == default_tile(5, weight)
    tile = candidates(5, weight)[0]
    configure(json.loads(json.dumps(as_table({key(5, weight): tile}))))
    assert tile_for(16, weight) == tile
    assert tile_for(17, weight) == default_tile(17, weight)
    assert tile_for(5, weights(2048, 3648, torch.float32, False)) != tile
