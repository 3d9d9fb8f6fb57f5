"""A projection of few rows by the kernel that streams the weights, of many by the library."""

from __future__ import annotations

import torch

from panel.kernels.norm import rms_norm
from panel.kernels.skinny import Norm, skinny_matmul

SKINNY_ROWS = 64
"""Rows up to which a projection is bound by reading its weights."""


def linear(
    x: torch.Tensor,
    weight: torch.Tensor,
    *,
    norm: Norm | None = None,
    bias: torch.Tensor | None = None,
    residual: torch.Tensor | None = None,
    out: torch.Tensor | None = None,
) -> torch.Tensor:
    """Return `norm(x) @ weight + bias`, added to `residual` in place where there is one.

    Shapes: x [rows, depth], weight [depth, columns], bias [columns].
    """
    if x.shape[0] <= SKINNY_ROWS and weight.stride(1) == 1:
        return skinny_matmul(x, weight, norm=norm, bias=bias, residual=residual, out=out)
    if norm is not None:
        x = rms_norm(x, *norm)
    if residual is not None:
        if bias is not None:
            residual += bias
        return torch.addmm(residual, x, weight, out=residual)
    if bias is not None:
        return torch.addmm(bias, x, weight, out=out)
    return torch.mm(x, weight, out=out)
