"""What a layer reads of a step."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import torch

from panel.kernels.latent_decode import Paging
from panel.server.cuda.layout import Chunk


@dataclass(frozen=True, slots=True)
class Step:
    """A step's input on the device; see `Layout`."""

    count: int
    width: int
    chunks: tuple[Chunk, ...]
    views: Mapping[str, torch.Tensor]
    wanted: torch.Tensor | None
    """Rows whose logits are wanted; None: all."""
    same: bool = True
    """Whether all ranks' steps have this count and width, and chunks of the same sizes."""

    @property
    def alike(self) -> bool:
        """Whether all ranks have as many rows, from a few sizes: a step that a graph can hold."""
        return self.same and not self.chunks

    @property
    def decoding(self) -> slice:
        """Rows of the decoding sequences, padding included."""
        return slice(0, self.count * self.width)

    @property
    def prefilling(self) -> slice:
        """Rows of the chunks."""
        return slice(self.count * self.width, None)

    def paging(self, page_size: int) -> Paging:
        """Return where the keys of the decoding sequences are."""
        return Paging(self.views["table"], self.views["lengths"], page_size)
