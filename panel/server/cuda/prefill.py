"""Attention of chunks of sequences: keys and values are expanded from their latents."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch.nn.attention.bias import causal_lower_right
from torch.nn.functional import pad, scaled_dot_product_attention

from panel.server.attention import LatentAttention
from panel.server.cuda.layout import Chunk

_FLASH_WIDTH = 256
"""The widest heads that flash attention takes."""


@dataclass(frozen=True, slots=True)
class Chunks:
    """The chunks of a step, one after the other."""

    every: Sequence[Chunk]
    query_ends: torch.Tensor
    """int32 [chunks + 1]: 0, then the sum of the sizes so far."""
    key_ends: torch.Tensor
    """int32 [chunks + 1]: 0, then the sum of the keys so far."""


def attend_chunks(
    attention: LatentAttention, query: torch.Tensor, entries: torch.Tensor, chunks: Chunks
) -> torch.Tensor:
    """Return the result of each token for each head, [rows, heads * (v or latent)].

    Shapes: query [rows, heads, (nope or latent) + rope], rotated; entries [keys, latent + rope] of
    all sequences, each up to its last token of this step. Keys and values are expanded unless the
    up-projections are folded into the neighbouring weights.
    """
    count, heads = entries.shape[0], query.shape[1]
    latent, rope = entries.split_with_sizes(
        (attention.latent, attention.width - attention.latent), dim=1
    )
    if attention.key_up is None:
        keys = entries[:, None].expand(-1, heads, -1)
    else:
        nope = torch.mm(latent, attention.key_up.flatten(0, 1).t()).view(count, heads, -1)
        keys = torch.cat((nope, rope[:, None].expand(-1, heads, -1)), dim=2)
    if attention.value_up is None:
        values = latent[:, None].expand(-1, heads, -1)
    else:
        values = torch.matmul(latent, attention.value_up).transpose(0, 1)
    half = query.is_cuda and query.dtype in (torch.bfloat16, torch.float16)
    if half and query.shape[2] <= _FLASH_WIDTH and values.shape[2] <= query.shape[2]:
        return _flash(query, keys, values, chunks)
    return _apart(query, keys, values, chunks.every)


def _flash(
    query: torch.Tensor, keys: torch.Tensor, values: torch.Tensor, chunks: Chunks
) -> torch.Tensor:
    """Compute all chunks at once."""
    width = values.shape[2]
    # The public name of this has other parameters in each version of torch from 2.10 on.
    mixed: torch.Tensor = torch.ops.aten._flash_attention_forward(
        query,
        keys,
        pad(values, (0, query.shape[2] - width)),
        chunks.query_ends,
        chunks.key_ends,
        max(chunk.size for chunk in chunks.every),
        max(chunk.start + chunk.size for chunk in chunks.every),
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
    results = []
    row = key = 0
    for chunk in chunks:
        size, count = chunk.size, chunk.start + chunk.size
        mixed = scaled_dot_product_attention(
            query[row : row + size].transpose(0, 1)[None],
            keys[key : key + count].transpose(0, 1)[None],
            values[key : key + count].transpose(0, 1)[None],
            attn_mask=None if size == count else causal_lower_right(size, count),
            is_causal=size == count,
            scale=1.0,
        )
        results.append(mixed[0].transpose(0, 1).flatten(1))
        row += size
        key += count
    return torch.cat(results)
