"""Attention over cached latents, by kernels.

Decoding queries meet the latents themselves; for chunks keys and values are expanded from them.
"""

from __future__ import annotations

import torch

from panel.kernels.latent_decode import latent_decode
from panel.kernels.latent_prepare import latent_prepare
from panel.kernels.latent_together import QUERIES, latent_together
from panel.server.attention import LatentAttention
from panel.server.cuda.linear import linear
from panel.server.cuda.prefill import attend_chunks
from panel.server.cuda.step import Step


def attend_latent(
    attention: LatentAttention,
    normed: torch.Tensor,
    step: Step,
    cache: torch.Tensor,
    turns: torch.Tensor,
    page_size: int,
) -> torch.Tensor:
    """Write the cache entries; return each head's result, [rows, heads * (v or latent)].

    Shapes: normed [rows, hidden], cache [slots, latent + rope], turns as in `Stack`.
    """
    query, entry = _project(attention, normed)
    norm = (attention.latent_norm.gain, attention.latent_norm.floor)

    def prepare(
        rows: slice, key_up: torch.Tensor | None, counter: torch.Tensor | None = None
    ) -> torch.Tensor:
        positions, slots = step.views["positions"][rows], step.views["slots"][rows]
        return latent_prepare(
            query[rows], entry[rows], turns, positions, norm, slots, cache, key_up, counter=counter
        )

    mixed = []
    latent, value_up, paging = attention.latent, attention.value_up, step.paging(page_size)
    queries = step.width * attention.heads
    if step.count == 1 and queries <= QUERIES and value_up is not None:
        counter = torch.empty(1, dtype=torch.int32, device=normed.device)
        absorbed = prepare(step.decoding, attention.key_up, counter)
        mixed.append(latent_together(absorbed, cache, latent, paging, value_up, counter))
    elif step.count:
        absorbed = prepare(step.decoding, attention.key_up)
        mixed.append(latent_decode(absorbed, cache, latent, paging, value_up))
    if step.chunks:
        rotated = prepare(step.prefilling, None)
        keys, values = _expand(attention, cache[step.views["keys"]])
        mixed.append(attend_chunks(rotated, keys, values, step))
    return mixed[0] if len(mixed) == 1 else torch.cat(mixed)


def _project(attention: LatentAttention, normed: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
    """Return queries [rows, heads, (latent or nope) + rope] and entries [rows, latent + rope]."""
    projected = linear(normed, attention.down, bias=attention.down_bias)
    query, entry = projected[:, : -attention.width], projected[:, -attention.width :]
    if attention.query_up is not None and attention.query_norm is not None:
        query = linear(query, attention.query_up, norm=attention.query_norm)
    return torch.unflatten(query, 1, (attention.heads, -1)), entry


def _expand(attention: LatentAttention, entries: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
    """Return keys [entries, heads, (latent or nope) + rope] and values [entries, heads, v].

    Where the up-projections are folded into the neighbouring weights all heads share what is there.
    """
    count, heads = entries.shape[0], attention.heads
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
    return keys, values
