"""What the draft head learns from: texts, and what the model itself makes of their beginnings."""

from __future__ import annotations

import torch
import torch.nn.functional as F  # noqa: N812
from draft_head import AUX_LAYERS
from model import Model
from torch import Tensor


def features(model: Model, ids: Tensor) -> tuple[Tensor, Tensor]:
    """The layers' outputs that make up the features, and the logits."""
    x = model.embed_tokens(ids)
    kept = []
    for number, layer in enumerate(model.layers):
        x = layer(x, model.rope[:, : ids.shape[1]])
        if number in AUX_LAYERS:
            kept.append(x)
    return torch.cat(kept, dim=-1), F.linear(model.norm(x), model.embed_tokens.weight)


@torch.no_grad()
def continue_texts(
    model: Model, prompts: Tensor, length: int, temperatures: Tensor, top_p: float = 0.95
) -> Tensor:
    """Prompts (rows, begin) grown to `length`; a row of temperature 0 is greedy."""
    rows, begin = prompts.shape
    ids = F.pad(prompts, (0, length - begin))
    caches: list[tuple[Tensor, Tensor] | None] = [None] * len(model.layers)
    done = 0
    for end in range(begin, length):
        x = model.embed_tokens(ids[:, done:end])
        rope = model.rope[:, done:end]
        for number, layer in enumerate(model.layers):
            query, key, value = layer.self_attn.heads_of(layer.input_layernorm(x), rope)
            if caches[number] is None:
                caches[number] = tuple(
                    y.new_empty(rows, y.shape[1], length, y.shape[3]) for y in (key, value)
                )
            keys, values = caches[number]
            keys[:, :, done:end], values[:, :, done:end] = key, value
            x = x + layer.self_attn.attend(query, keys[:, :, :end], values[:, :, :end], done == 0)
            x = x + layer.mlp(layer.post_attention_layernorm(x))
        logits = F.linear(model.norm(x[:, -1]), model.embed_tokens.weight).float()
        ids[:, end] = pick(logits, temperatures, top_p)
        done = end
    return ids


def pick(logits: Tensor, temperatures: Tensor, top_p: float) -> Tensor:
    """One token a row from the most probable that have `top_p` of the probability together."""
    chances = (logits / temperatures[:, None].clamp(min=1e-4)).softmax(-1)
    ordered, order = chances.sort(dim=-1, descending=True)
    ordered[ordered.cumsum(-1) - ordered > top_p] = 0
    drawn = order.gather(1, torch.multinomial(ordered, 1)).squeeze(1)
    return torch.where(temperatures > 0, drawn, logits.argmax(-1))
