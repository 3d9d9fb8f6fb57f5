"""Grouped-query attention with normalised queries and keys."""

from __future__ import annotations

from dataclasses import dataclass

import torch

from panel.server.attention import project
from panel.server.batch import Batch, Span
from panel.server.norm import RMSNorm
from panel.server.rope import rotate_


@dataclass(frozen=True, slots=True)
class GroupedAttention:
    """One layer's attention with this rank's heads.

    A token's cache entry is the keys of this rank's cached heads, then their values,
    [2 * kv heads * width]. The softmax scale is in the gain of the queries' norm.
    """

    norm: RMSNorm
    qkv: torch.Tensor
    """[hidden, (heads + 2 * kv heads) * width]"""
    qkv_bias: torch.Tensor | None
    query_norm: RMSNorm
    key_norm: RMSNorm
    out: torch.Tensor
    """[heads * width, hidden]"""
    out_bias: torch.Tensor | None
    """On one of the ranks whose parts are added up."""
    heads: int
    kv_heads: int

    def __call__(
        self,
        hidden: torch.Tensor,
        rotation: torch.Tensor,
        batch: Batch,
        cache: torch.Tensor,
        part: torch.Tensor,
    ) -> None:
        projected = project(self.norm(hidden), self.qkv, self.qkv_bias)
        heads = torch.unflatten(projected, 1, (self.heads + 2 * self.kv_heads, -1))
        query, key = heads[:, : self.heads], heads[:, self.heads : self.heads + self.kv_heads]
        self.query_norm(query, out=query)
        self.key_norm(key, out=key)
        rotate_(heads[:, : self.heads + self.kv_heads], rotation)
        cache.index_copy_(0, batch.slots, heads[:, self.heads :].flatten(1))
        context = [attend(query, span, cache, self.kv_heads) for span in batch.spans]
        mixed = context[0] if len(context) == 1 else torch.cat(context)
        project(mixed, self.out, self.out_bias, part)


def attend(query: torch.Tensor, span: Span, cache: torch.Tensor, groups: int) -> torch.Tensor:
    """Return the result of a span, [rows, heads * width].

    Shapes: query [rows of the batch, heads, width], cache [slots, 2 * groups * width], where a
    group is a cached head.
    """
    count, width = span.count, span.width
    rows = query[span.begin : span.begin + count * width]
    # [sequences, kv heads, tokens * heads of a group, head width]
    queries = rows.reshape(count, width, groups, query.shape[1] // groups, -1).transpose(1, 2)
    shape = queries.shape
    entries = torch.index_select(cache, 0, span.keys).view(count, -1, 2, groups, shape[-1])
    keys, values = entries.permute(2, 0, 3, 1, 4)
    scores = torch.matmul(queries.flatten(2, 3), keys.transpose(2, 3))
    if span.mask is not None:
        scores.view(*shape[:-1], -1).add_(span.mask.unsqueeze(1))
    mixed = torch.matmul(torch.softmax(scores, dim=-1), values)
    return mixed.view(shape).transpose(1, 2).reshape(count * width, -1)
