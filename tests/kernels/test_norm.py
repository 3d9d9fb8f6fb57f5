"""The kernels against their references, in Triton's interpreter (set before triton is imported)."""

from __future__ import annotations

import os

os.environ.setdefault("TRITON_INTERPRET", "1")

import pytest
import torch

pytest.importorskip("triton", reason="triton has wheels for Linux on x86-64 only")

from panel.kernels.norm import add_rms_norm, rms_norm, rms_norm_reference


@pytest.mark.parametrize("dtype", [torch.float32, torch.float16])
@pytest.mark.parametrize(("rows", "hidden"), [(1, 256), (5, 192), (3, 1000)])
def test_rms_norm(dtype: torch.dtype, rows: int, hidden: int) -> None:
    x = torch.randn(rows, hidden, dtype=dtype)
    weight = torch.randn(hidden, dtype=dtype)
    assert torch.allclose(
        rms_norm(x, weight, 1e-6), rms_norm_reference(x, weight, 1e-6), atol=2e-3, rtol=2e-3
    )


@pytest.mark.parametrize("dtype", [torch.float32, torch.float16])
def test_add_rms_norm_updates_the_residual(dtype: torch.dtype) -> None:
    x, residual = torch.randn(2, 4, 320, dtype=dtype)
    weight = torch.randn(320, dtype=dtype)
    total = x + residual
    out = add_rms_norm(x, residual, weight, 1e-6)
    assert torch.equal(residual, total)
    assert torch.allclose(out, rms_norm_reference(total, weight, 1e-6), atol=2e-3, rtol=2e-3)
