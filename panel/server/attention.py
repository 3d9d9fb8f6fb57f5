"""Multi-head latent attention over a cache of latents."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Protocol

import torch

from panel.server.batch import Batch, Span
from panel.server.norm import RMSNorm
from panel.server.rope import rotate_


class Attention(Protocol):
    """The first half of a layer."""

    @property
    def norm(self) -> RMSNorm:
        """What the layer's input goes through first."""
        ...

    def __call__(
        self,
        hidden: torch.Tensor,
        rotation: torch.Tensor,
        batch: Batch,
        cache: torch.Tensor,
        part: torch.Tensor,
    ) -> None:
        """Write this rank's part of the layer's result into `part`, and the cache entries.

        Shapes: hidden and part [rows, hidden], rotation [rows, 1, rope / 2], cache [slots, entry].
        """
        ...


@dataclass(frozen=True, slots=True)
class LatentAttention:
    """One layer's attention with this rank's heads.

    A token's cache entry is its normalised latent and its rotated key part, [latent + rope]. As a
    rule queries meet the latents directly: the up-projections are applied to queries and to the
    result (absorbed). For many queries at once it is less work to expand keys and values.
    Where that makes weights little larger the up-projections are folded into the neighbouring
    projections when the model is loaded (then `key_up` and `value_up` are None). The softmax scale
    is in the query weights.
    """

    norm: RMSNorm
    down: torch.Tensor
    """[hidden, first + latent + rope]: first is the query or its low-rank latent."""
    down_bias: torch.Tensor | None
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
    out_bias: torch.Tensor | None
    """On one of the ranks whose parts are added up."""
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
        query, entry = self._project(hidden, rotation)
        cache.index_copy_(0, batch.slots, entry)
        context = [self._attend(query, span, cache) for span in batch.spans]
        mixed = context[0] if len(context) == 1 else torch.cat(context)
        project(mixed.reshape(hidden.shape[0], -1), self.out, self.out_bias, part)

    def _project(
        self, hidden: torch.Tensor, rotation: torch.Tensor
    ) -> tuple[torch.Tensor, torch.Tensor]:
        """Return queries [rows, heads, (latent or nope) + rope] and entries [rows, width]."""
        projected = project(self.norm(hidden), self.down, self.down_bias)
        if self.query_up is None and self.key_up is None:
            # The cache entry is laid out like one more head.
            heads = projected.view(-1, self.heads + 1, self.width)
            rotate_(heads[:, :, self.latent :], rotation)
            query, entry = heads[:, : self.heads], heads[:, self.heads]
        else:
            query, entry = self._query(projected[:, : -self.width]), projected[:, -self.width :]
            rope = self.width - self.latent
            rotate_(query[:, :, -rope:], rotation)
            rotate_(entry[:, None, -rope:], rotation)
        latent = entry[:, : self.latent]
        self.latent_norm(latent, out=latent)
        return query, entry

    def _query(self, first: torch.Tensor) -> torch.Tensor:
        if self.query_norm is not None and self.query_up is not None:
            first = torch.mm(self.query_norm(first), self.query_up)
        return torch.unflatten(first, 1, (self.heads, -1))

    def _attend(self, query: torch.Tensor, span: Span, cache: torch.Tensor) -> torch.Tensor:
        """Return the result of a span for each head, [rows, heads, latent or v]."""
        rows = query[span.begin : span.begin + span.count * span.width]
        keys = torch.index_select(cache, 0, span.keys).view(span.count, -1, self.width)
        if (
            self.key_up is not None
            and self.value_up is not None
            and span.count == 1
            and self._expanding_pays(self.key_up, self.value_up, span.width, keys.shape[1])
        ):
            return self._expanded(rows, span, keys[0], self.key_up, self.value_up)
        return self._absorbed(rows, span, keys)

    def _absorbed(self, query: torch.Tensor, span: Span, keys: torch.Tensor) -> torch.Tensor:
        if self.key_up is not None:
            sizes = (self.key_up.shape[1], self.width - self.latent)
            nope, rope = query.split_with_sizes(sizes, dim=-1)
            absorbed = torch.bmm(nope.transpose(0, 1), self.key_up).transpose(0, 1)
            query = torch.cat((absorbed, rope), dim=-1)
        count, width = span.count, span.width
        queries = query.reshape(count, width * self.heads, self.width)
        scores = torch.bmm(queries, keys.transpose(1, 2))
        if span.mask is not None:
            scores.view(count, width, self.heads, -1).add_(span.mask)
        mixed = torch.bmm(torch.softmax(scores, dim=-1), keys[:, :, : self.latent])
        mixed = mixed.view(count * width, self.heads, self.latent)
        if self.value_up is None:
            return mixed
        return torch.bmm(mixed.transpose(0, 1), self.value_up).transpose(0, 1)

    def _expanded(
        self,
        query: torch.Tensor,
        span: Span,
        keys: torch.Tensor,
        key_up: torch.Tensor,
        value_up: torch.Tensor,
    ) -> torch.Tensor:
        latent, key_rope = keys.split_with_sizes((self.latent, self.width - self.latent), dim=-1)
        nope, rope = query.transpose(0, 1).split_with_sizes(
            (key_up.shape[1], key_rope.shape[1]), dim=-1
        )
        scores = torch.matmul(nope, torch.matmul(key_up, latent.t()))
        scores += torch.matmul(rope, key_rope.t())
        if span.mask is not None:
            scores += span.mask.view(1, span.width, -1)
        mixed = torch.bmm(torch.softmax(scores, dim=-1), torch.matmul(latent, value_up))
        return mixed.transpose(0, 1)

    def _expanding_pays(
        self, key_up: torch.Tensor, value_up: torch.Tensor, queries: int, keys: int
    ) -> bool:
        """Compare multiplications; it follows from shapes alone, so that all ranks choose alike."""
        apart = key_up.shape[1] + value_up.shape[2]
        rope = self.width - self.latent
        absorbed = queries * (keys * (2 * self.latent + rope) + self.latent * apart)
        return keys * (self.latent * apart + queries * (apart + rope)) < absorbed


def project(
    x: torch.Tensor,
    weight: torch.Tensor,
    bias: torch.Tensor | None,
    out: torch.Tensor | None = None,
) -> torch.Tensor:
    """Return `x @ weight + bias`, [rows, columns]."""
    if bias is None:
        return torch.mm(x, weight, out=out)
    return torch.addmm(bias, x, weight, out=out)
