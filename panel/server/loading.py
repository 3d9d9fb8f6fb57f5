"""What all parts of a layer are loaded with."""

from __future__ import annotations

from dataclasses import dataclass

import torch

from panel.server.kept.shelf import Shelf
from panel.server.norm import RMSNorm
from panel.server.parallel import Shard
from panel.server.shape import ModelConfig
from panel.server.weights import Part, WeightSource

Gated = tuple[torch.Tensor, torch.Tensor, torch.Tensor]
"""Gate and up, [columns, hidden], and down, [hidden, columns]."""


@dataclass(frozen=True, slots=True)
class Loading:
    """A source of weights, and the rank they are for."""

    config: ModelConfig
    shard: Shard
    source: WeightSource
    device: torch.device
    dtype: torch.dtype
    shelf: Shelf | None = None
    """Where weights are laid that outlive the rank; None: in memory of its own."""

    def get(self, name: str, shape: tuple[int, ...], part: Part = ()) -> torch.Tensor:
        """Return `part` of a tensor in float32, where it can be worked on."""
        # A copy: a slice of a float32 file would stay a view of the mapped file.
        return self.source.get(name, shape, part).to(torch.float32, copy=True)

    def place(self, tensor: torch.Tensor) -> torch.Tensor:
        """Return the tensor as the rank computes with it."""
        return self.settle(tensor, self.dtype)

    def settle(self, tensor: torch.Tensor, dtype: torch.dtype) -> torch.Tensor:
        """Return the tensor in this type where the rank computes with it."""
        if self.shelf is not None:
            return self.shelf.lay(tensor, dtype)
        placed = tensor.to(self.device, dtype)
        # Kernels read rows of a weight as they lie; a library on the host takes any strides.
        return placed if self.device.type == "cpu" else placed.contiguous()

    def norm(self, name: str, width: int, eps: float | None = None) -> RMSNorm:
        """Return a norm, by default with the config's epsilon."""
        gain = self.get(name, (width,)).to(self.device, self.dtype)
        return RMSNorm.of(gain, self.config.rms_norm_eps if eps is None else eps)

    def mlp(self, prefix: str, width: int, part: slice) -> Gated:
        """Return a part of a feed-forward part of `width` columns, in the rank's type."""
        hidden = self.config.hidden_size
        gate, up, down = (
            self.source.get(prefix + "gate_proj.weight", (width, hidden), (part,)),
            self.source.get(prefix + "up_proj.weight", (width, hidden), (part,)),
            self.source.get(prefix + "down_proj.weight", (hidden, width), (slice(None), part)),
        )
        gate, up, down = (each.to(self.dtype, copy=True) for each in (gate, up, down))
        return gate, up, down

    def out_bias(self, prefix: str) -> torch.Tensor | None:
        """Return the bias of an output projection, on one of the ranks that add up."""
        if not self.config.attention_bias or not self.shard.adds_bias:
            return None
        return self.place(self.get(prefix + "o_proj.bias", (self.config.hidden_size,)))
