"""A projection by the library, which streams weights as fast as any kernel of ours did."""

from __future__ import annotations

import torch

from panel.kernels.norm import rms_norm
from panel.server.norm import RMSNorm


def linear(
    x: torch.Tensor,
    weight: torch.Tensor,
    *,
    norm: RMSNorm | None = None,
    bias: torch.Tensor | None = None,
    residual: torch.Tensor | None = None,
    out: torch.Tensor | None = None,
) -> torch.Tensor:
    """Return `norm(x) @ weight + bias`, added to `residual` in place where there is one.

    Shapes: x [rows, depth], weight [depth, columns], bias [columns].
    """
    if norm is not None:
        x = rms_norm(x, norm.gain, norm.floor)
    if residual is not None:
        if bias is not None:
            residual += bias
        return torch.addmm(residual, x, weight, out=residual)
    if bias is not None:
        return torch.addmm(bias, x, weight, out=out)
    return torch.mm(x, weight, out=out)
