"""The attention of the draft layer: Llama's, over a token and a feature side by side."""

from __future__ import annotations

from dataclasses import dataclass

import torch

from panel.server.attention import project
from panel.server.batch import Batch
from panel.server.grouped import attend
from panel.server.rope import rotate_


@dataclass(frozen=True, slots=True)
class DraftAttention:
    """This rank's heads; a cache entry is keys, then values, [2 * kv heads * width].

    The softmax scale is in the weights of the queries.
    """

    qkv: torch.Tensor
    """[2 * hidden, (heads + 2 * kv heads) * width]"""
    out: torch.Tensor
    """[heads * width, hidden]"""
    heads: int
    kv_heads: int

    def __call__(
        self,
        both: torch.Tensor,
        rotation: torch.Tensor,
        batch: Batch,
        cache: torch.Tensor,
        part: torch.Tensor,
    ) -> None:
        """Write this rank's part of the result into `part`, and the cache entries.

        Shapes: both [rows, 2 * hidden], part [rows, hidden], rotation [rows, 1, width / 2],
        cache [slots, entry].
        """
        query = self.remember(both, rotation, batch.slots, cache)
        context = [attend(query, span, cache, self.kv_heads) for span in batch.spans]
        mixed = context[0] if len(context) == 1 else torch.cat(context)
        project(mixed, self.out, None, part)

    def remember(
        self,
        both: torch.Tensor,
        rotation: torch.Tensor,
        slots: torch.Tensor,
        cache: torch.Tensor,
    ) -> torch.Tensor:
        """Write the cache entries alone; return the queries, [rows, heads, width]."""
        projected = torch.mm(both, self.qkv)
        heads = torch.unflatten(projected, 1, (self.heads + 2 * self.kv_heads, -1))
        rotate_(heads[:, : self.heads + self.kv_heads], rotation)
        cache.index_copy_(0, slots, heads[:, self.heads :].flatten(1))
        return heads[:, : self.heads]
