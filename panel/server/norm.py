"""RMS normalisation."""

from __future__ import annotations

from dataclasses import dataclass

import torch


@dataclass(frozen=True, slots=True)
class RMSNorm:
    """`x / sqrt(mean(x²) + eps) * gain` over the last dimension.

    On a GPU it is one kernel. On a CPU, where a small step is bound by the number of operators, it
    is `x / hypot(|x|, sqrt(n eps)) * (gain sqrt(n))`: four of them, where torch composes nine.
    """

    gain: torch.Tensor
    """The gain times sqrt(n), shape [n]."""
    floor: torch.Tensor
    """sqrt(n eps), a scalar tensor."""

    @classmethod
    def of(cls, gain: torch.Tensor, eps: float) -> RMSNorm:
        """Return the norm with the checkpoint's gain, shape [n]."""
        width = gain.shape[0]
        return cls(gain * width**0.5, gain.new_tensor((width * eps) ** 0.5))

    def __call__(self, x: torch.Tensor, out: torch.Tensor | None = None) -> torch.Tensor:
        """Return the normalised `x`, shape [..., n]; `out` may be `x`."""
        if x.is_cuda:
            # Imported where there is a GPU only: triton has no wheels for some CPU machines.
            from panel.kernels.norm import rms_norm

            return rms_norm(x, self.gain, self.floor, out)
        length = torch.linalg.vector_norm(x, dim=-1, keepdim=True)
        return torch.div(x, torch.hypot(length, self.floor), out=out).mul_(self.gain)
