"""Rotary position embedding on interleaved pairs."""

from __future__ import annotations

import torch


def rotation_table(width: int, theta: float, positions: int) -> torch.Tensor:
    """Return the unit complex numbers that rotate the pairs, shape [positions, width / 2]."""
    frequencies = 1.0 / theta ** (torch.arange(0, width, 2, dtype=torch.float32) / width)
    angles = torch.outer(torch.arange(positions, dtype=torch.float32), frequencies)
    return torch.polar(torch.ones_like(angles), angles)


def rotate_(x: torch.Tensor, rotation: torch.Tensor) -> None:
    """Rotate `x` in place: pairs (x0, x1), (x2, x3), ... of its last dimension.

    Shapes: `x` [..., width], `rotation` broadcasts to [..., width / 2].
    """
    single = x.float()
    torch.view_as_complex(torch.unflatten(single, -1, (-1, 2))).mul_(rotation)
    if single is not x:
        x.copy_(single)


def interleave_rows(weight: torch.Tensor) -> torch.Tensor:
    """Return rows of a projection to halves (x0, x1, ..., y0, y1, ...) as pairs (x0, y0), ...

    Shape [..., width, n]. Queries and keys reordered alike have the same products.
    """
    return torch.unflatten(weight, -2, (2, -1)).transpose(-3, -2).flatten(-3, -2)
