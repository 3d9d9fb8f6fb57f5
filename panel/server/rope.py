"""Rotary position embedding on interleaved pairs."""

from __future__ import annotations

import math

import torch

from panel.server.shape import RopeShape, Yarn


def rotation_table(rope: RopeShape, positions: int) -> torch.Tensor:
    """Return the complex numbers that rotate the pairs, shape [positions, width / 2]."""
    pairs = torch.arange(0, rope.width, 2, dtype=torch.float32) / rope.width
    frequencies = 1.0 / rope.theta**pairs
    length = 1.0
    if rope.yarn is not None:
        kept = _kept(rope.width, rope.theta, rope.yarn)
        frequencies = frequencies * kept + frequencies / rope.yarn.factor * (1 - kept)
        length = rope.yarn.attention_factor
    angles = torch.outer(torch.arange(positions, dtype=torch.float32), frequencies)
    return torch.polar(torch.full_like(angles, length), angles)


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


def _kept(width: int, theta: float, yarn: Yarn) -> torch.Tensor:
    """Return how much of each frequency is kept as it is: 1 for the fast ones, 0 for the slow."""

    def pair_with(turns: float) -> float:
        """The pair that turns `turns` times within the original context."""
        wavelengths = yarn.original_context / (turns * 2 * math.pi)
        return width * math.log(wavelengths) / (2 * math.log(theta))

    low, high = pair_with(yarn.beta_fast), pair_with(yarn.beta_slow)
    if yarn.truncate:
        low, high = math.floor(low), math.ceil(high)
    low, high = max(low, 0), min(high, width - 1)
    if low == high:
        high += 0.001
    ramp = (torch.arange(width // 2, dtype=torch.float32) - low) / (high - low)
    return 1 - ramp.clamp(0, 1)
