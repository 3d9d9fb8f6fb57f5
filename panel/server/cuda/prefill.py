"""Attention of chunks of sequences over expanded keys and values."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch.nn.attention.bias import causal_lower_right
from torch.nn.functional import pad, scaled_dot_product_attention

from panel.server.cuda.layout import Chunk
from panel.server.cuda.step import Step

_FLASH_WIDTH = 256
"""The widest heads that flash attention takes."""


def attend_chunks(
    query: torch.Tensor, keys: torch.Tensor, values: torch.Tensor, step: Step
) -> torch.Tensor:
    """Return the result of each token of a step's chunks, [rows, heads * v].

    Shapes: query [rows, heads, width], rotated, its softmax scale in it; keys [keys, groups, width]
    and values [keys, groups, v] of all chunks' sequences, each up to its last token of this step.
    As many neighbouring heads share each of the groups.
    """
    half = query.is_cuda and query.dtype in (torch.bfloat16, torch.float16)
    if half and query.shape[2] <= _FLASH_WIDTH and values.shape[2] <= query.shape[2]:
        return _flash(query, keys, values, step)
    return _apart(query, keys, values, step.chunks)


def _flash(
    query: torch.Tensor, keys: torch.Tensor, values: torch.Tensor, step: Step
) -> torch.Tensor:
    """Compute all chunks at once."""
    width, missing = values.shape[2], query.shape[2] - values.shape[2]
    # The public name of this has other parameters in each version of torch from 2.10 on.
    mixed: torch.Tensor = torch.ops.aten._flash_attention_forward(
        query,
        keys,
        pad(values, (0, missing)) if missing else values,
        step.views["query_ends"],
        step.views["key_ends"],
        max(chunk.size for chunk in step.chunks),
        max(chunk.start + chunk.size for chunk in step.chunks),
        0.0,
        True,
        False,
        scale=1.0,
    )[0]
    return mixed[:, :, :width].flatten(1)


def _apart(
    query: torch.Tensor, keys: torch.Tensor, values: torch.Tensor, chunks: Sequence[Chunk]
) -> torch.Tensor:
    """Compute one chunk after the other."""
    share = query.shape[1] // keys.shape[1]
    results = []
    row = key = 0
    for chunk in chunks:
        size, count = chunk.size, chunk.start + chunk.size
        mine = slice(key, key + count)
        mixed = scaled_dot_product_attention(
            query[row : row + size].transpose(0, 1)[None],
            keys[mine].repeat_interleave(share, dim=1).transpose(0, 1)[None],
            values[mine].repeat_interleave(share, dim=1).transpose(0, 1)[None],
            attn_mask=None if size == count else causal_lower_right(size, count),
            is_causal=size == count,
            scale=1.0,
        )
        results.append(mixed[0].transpose(0, 1).flatten(1))
        row += size
        key += count
    return torch.cat(results)
