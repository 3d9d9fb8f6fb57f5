"""The kernel against its reference, in Triton's interpreter."""

from __future__ import annotations

import pytest
import torch

pytest.importorskip("triton", reason="triton has wheels for Linux on x86-64 only")

from panel.kernels.norm import rms_norm, rms_norm_reference
from panel.server.norm import RMSNorm

FLOOR = torch.tensor((256 * 1e-6) ** 0.5)


def close(ours: torch.Tensor, reference: torch.Tensor) -> bool:
    return torch.allclose(ours, reference, atol=2e-3, rtol=2e-3)


@pytest.mark.parametrize("dtype", [torch.float32, torch.float16])
@pytest.mark.parametrize("shape", [(1, 256), (5, 192), (3, 1000), (2, 4, 64)])
def test_rms_norm(dtype: torch.dtype, shape: tuple[int, ...]) -> None:
    x = torch.randn(shape, dtype=dtype)
    gain = torch.randn(shape[-1], dtype=dtype)
    assert close(rms_norm(x, gain, FLOOR), rms_norm_reference(x, gain, FLOOR))


@pytest.mark.parametrize("heads", [None, 3])
def test_strided_rows_in_place(heads: int | None) -> None:
    """Latents are a part of a wider row, and are normalised where they are."""
    whole = torch.randn((6, 160) if heads is None else (6, heads, 160))
    before, gain = whole.clone(), torch.randn(64)
    part = whole[..., 32:96]
    rms_norm(part, gain, FLOOR, out=part)
    assert close(part, rms_norm_reference(before[..., 32:96], gain, FLOOR))
    assert torch.equal(whole[..., :32], before[..., :32])
    assert torch.equal(whole[..., 96:], before[..., 96:])


def test_the_engine_s_own_form_is_the_same_function() -> None:
    x, gain = torch.randn(4, 256), torch.rand(256)
    norm = RMSNorm.of(gain, 1e-6)
    assert torch.allclose(norm(x), rms_norm_reference(x, norm.gain, norm.floor), atol=1e-5)
