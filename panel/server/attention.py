"""Multi-head latent attention: queries meet the cached latents directly (absorbed form)."""

from __future__ import annotations

from dataclasses import dataclass

import torch

from panel.server.batch import Batch, Span
from panel.server.norm import RMSNorm
from panel.server.rope import rotate_


@dataclass(frozen=True, slots=True)
class Attention:
    """One layer's attention with this rank's heads.

    A token's cache entry is its normalised latent and its rotated key part, [latent + rope]. Keys
    and values are never expanded: the up-projections are applied to queries and to the result.
    Where that makes weights little larger they are folded into the neighbouring projections when
    the model is loaded (then `key_up` and `value_up` are None). The softmax scale is in the query
    weights.
    """

    norm: RMSNorm
    down: torch.Tensor
    """[hidden, first + latent + rope]: first is the query or its low-rank latent."""
    query_norm: RMSNorm | None
    query_up: torch.Tensor | None
    """[query latent, heads * query width], or None where `down` gives the query itself."""
    key_up: torch.Tensor | None
    """[heads, nope, latent]"""
    latent_norm: RMSNorm
    value_up: torch.Tensor | None
    """[heads, latent, v]"""
    out: torch.Tensor
    """[heads * (v or latent), hidden]"""
    heads: int
    latent: int
    width: int
    """latent + rope"""

    def __call__(
        self,
        hidden: torch.Tensor,
        rotation: torch.Tensor,
        batch: Batch,
        cache: torch.Tensor,
        part: torch.Tensor,
    ) -> None:
        """Write this rank's part of the layer's result into `part`, and the cache entries.

        Shapes: hidden and part [rows, hidden], rotation [rows, 1, rope / 2], cache
        [slots, latent + rope].
        """
        rows = hidden.shape[0]
        query, entry = self._project(hidden, rotation)
        cache.index_copy_(0, batch.slots, entry)
        context = [self._attend(query, span, cache) for span in batch.spans]
        mixed = context[0] if len(context) == 1 else torch.cat(context)
        if self.value_up is not None:
            mixed = torch.bmm(mixed.transpose(0, 1), self.value_up).transpose(0, 1)
        torch.mm(mixed.reshape(rows, -1), self.out, out=part)

    def _project(
        self, hidden: torch.Tensor, rotation: torch.Tensor
    ) -> tuple[torch.Tensor, torch.Tensor]:
        """Return queries [rows, heads, latent + rope] and cache entries [rows, latent + rope]."""
        projected = torch.mm(self.norm(hidden), self.down)
        if self.query_up is None and self.key_up is None:
            heads = projected.view(-1, self.heads + 1, self.width)
        else:
            query = self._query(projected[:, : -self.width])
            heads = torch.cat((query, projected[:, None, -self.width :]), dim=1)
        # The cache entry is laid out like one more head.
        rotate_(heads[:, :, self.latent :], rotation)
        entry = heads[:, self.heads]
        latent = entry[:, : self.latent]
        self.latent_norm(latent, out=latent)
        return heads[:, : self.heads], entry

    def _query(self, first: torch.Tensor) -> torch.Tensor:
        """Return the queries of what `down` gives first, [rows, heads, latent + rope]."""
        if self.query_norm is not None and self.query_up is not None:
            first = torch.mm(self.query_norm(first), self.query_up)
        query = torch.unflatten(first, 1, (self.heads, -1))
        if self.key_up is None:
            return query
        sizes = (self.key_up.shape[1], self.width - self.latent)
        nope, rope = query.split_with_sizes(sizes, dim=-1)
        absorbed = torch.bmm(nope.transpose(0, 1), self.key_up).transpose(0, 1)
        return torch.cat((absorbed, rope), dim=-1)

    def _attend(self, query: torch.Tensor, span: Span, cache: torch.Tensor) -> torch.Tensor:
        """Return the mixed latents of a span, [rows, heads, latent]."""
        count, width = span.count, span.width
        rows = query[span.begin : span.begin + count * width]
        queries = rows.reshape(count, width * self.heads, self.width)
        keys = torch.index_select(cache, 0, span.keys).view(count, -1, self.width)
        scores = torch.bmm(queries, keys.transpose(1, 2))
        if span.mask is not None:
            scores.view(count, width, self.heads, -1).add_(span.mask)
        mixed = torch.bmm(torch.softmax(scores, dim=-1), keys[:, :, : self.latent])
        return mixed.view(count * width, self.heads, self.latent)
