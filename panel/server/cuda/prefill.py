"""Attention of a chunk of one sequence: keys and values are expanded from their latents."""

from __future__ import annotations

import torch
from torch.nn.attention.bias import causal_lower_right
from torch.nn.functional import scaled_dot_product_attention

from panel.server.attention import LatentAttention


def attend_chunk(
    attention: LatentAttention, query: torch.Tensor, entries: torch.Tensor
) -> torch.Tensor:
    """Return the result of each token for each head, [size, heads * (v or latent)].

    Shapes: query [size, heads, (nope or latent) + rope], rotated; entries [keys, latent + rope] of
    the sequence up to its last token of this step. Keys and values are expanded unless the
    up-projections are folded into the neighbouring weights.
    """
    size, heads, _ = query.shape
    count = entries.shape[0]
    latent, rope = entries.split_with_sizes(
        (attention.latent, attention.width - attention.latent), dim=1
    )
    if attention.key_up is None:
        keys = entries[:, None].expand(-1, heads, -1)
    else:
        nope = torch.mm(latent, attention.key_up.flatten(0, 1).t()).view(count, heads, -1)
        keys = torch.cat((nope, rope[:, None].expand(-1, heads, -1)), dim=2)
    if attention.value_up is None:
        values = latent.expand(heads, -1, -1)
    else:
        values = torch.matmul(latent, attention.value_up)
    mixed = scaled_dot_product_attention(
        query.transpose(0, 1)[None],
        keys.transpose(0, 1)[None],
        values[None],
        attn_mask=None if size == count else causal_lower_right(size, count),
        is_causal=size == count,
        scale=1.0,
    )
    return mixed[0].transpose(0, 1).reshape(size, -1)
