"""Attention over cached keys and values of groups of heads, by kernels."""

from __future__ import annotations

import torch

from panel.kernels.grouped_decode import grouped_decode
from panel.kernels.grouped_prepare import grouped_prepare
from panel.server.cuda.linear import linear
from panel.server.cuda.prefill import attend_chunks
from panel.server.cuda.step import Step
from panel.server.grouped import GroupedAttention


def attend_grouped(
    attention: GroupedAttention,
    normed: torch.Tensor,
    step: Step,
    cache: torch.Tensor,
    turns: torch.Tensor,
    page_size: int,
) -> torch.Tensor:
    """Write the cache entries; return each head's result, [rows, heads * width].

    Shapes: normed [rows, hidden], cache [slots, 2 * groups * width], turns as in `Stack`.
    """
    groups, views = attention.kv_heads, step.views
    of_query, of_key = attention.query_norm, attention.key_norm
    projected = linear(normed, attention.qkv, bias=attention.qkv_bias)
    query = grouped_prepare(
        projected.unflatten(1, (attention.heads + 2 * groups, -1)),
        turns,
        views["positions"],
        views["slots"],
        cache,
        ((of_query.gain, of_query.floor), (of_key.gain, of_key.floor)),
    )
    mixed = []
    if step.count:
        paging = step.paging(page_size)
        mixed.append(grouped_decode(query[step.decoding], cache, groups, paging))
    if step.chunks:
        entries = cache[views["keys"]].unflatten(1, (2, groups, -1))
        mixed.append(attend_chunks(query[step.prefilling], entries[:, 0], entries[:, 1], step))
    return mixed[0] if len(mixed) == 1 else torch.cat(mixed)
