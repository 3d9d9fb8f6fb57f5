"""Load one rank's part of an attention.

Weights are kept as [input, output]; projections of the same input are one matrix.
"""

from __future__ import annotations

import torch

from panel.server.attention import Attention, LatentAttention
from panel.server.grouped import GroupedAttention
from panel.server.loading import Loading
from panel.server.memory import folding_pays
from panel.server.norm import RMSNorm
from panel.server.parallel import length
from panel.server.rope import interleave_rows
from panel.server.shape import GroupedShape, LatentShape

_LATENT_NORM_EPS = 1e-6
"""The reference ignores the config's epsilon in the two norms of the latents."""


def load_attention(loading: Loading, number: int) -> Attention:
    """Return the attention of layer `number`."""
    match loading.config.attention:
        case LatentShape() as shape:
            return _latent(loading, shape, number)
        case GroupedShape() as shape:
            return _grouped(loading, shape, number)


def _latent(loading: Loading, shape: LatentShape, number: int) -> LatentAttention:
    config, prefix = loading.config, f"model.layers.{number}.self_attn."
    hidden, latent, low = config.hidden_size, shape.kv_lora_rank, shape.q_lora_rank
    nope, rope, v = shape.nope, shape.rope, shape.v
    heads = loading.shard.part(config.heads)
    count = length(heads)
    query_input = hidden if low is None else low
    name = "q_proj.weight" if low is None else "q_b_proj.weight"
    query = loading.get(
        prefix + name, (config.heads * (nope + rope), query_input), (_wide(heads, nope + rope),)
    ).view(count, nope + rope, query_input)
    query = query * ((nope + rope) ** -0.5 * config.rope.softmax_factor)
    query_nope, query_rope = query.split_with_sizes((nope, rope), dim=1)
    key_down = loading.get(prefix + "kv_a_proj_with_mqa.weight", (latent + rope, hidden))
    if not shape.interleaved:
        query_rope = interleave_rows(query_rope)
        key_down = _interleave_tail(key_down, latent)
    up = loading.get(
        prefix + "kv_b_proj.weight", (config.heads * (nope + v), latent), (_wide(heads, nope + v),)
    ).view(count, nope + v, latent)
    key_up, value_up = up.split_with_sizes((nope, v), dim=1)
    out = loading.get(
        prefix + "o_proj.weight", (hidden, config.heads * v), (slice(None), _wide(heads, v))
    ).view(hidden, count, v)

    fold_query = folding_pays(query_input, nope, latent)
    if fold_query:
        query_nope = key_up.transpose(1, 2) @ query_nope
    query = torch.cat((query_nope, query_rope), dim=1).flatten(0, 1)
    fold_value = folding_pays(hidden, v, latent)
    mixed_out = out.permute(1, 2, 0)
    if fold_value:
        mixed_out = value_up.transpose(1, 2) @ mixed_out

    if low is None:
        first, query_norm, query_up = query, None, None
    else:
        first = loading.get(prefix + "q_a_proj.weight", (low, hidden))
        query_norm = loading.norm(prefix + "q_a_layernorm.weight", low, _LATENT_NORM_EPS)
        query_up = loading.place(query.t())
    return LatentAttention(
        norm=loading.norm(f"model.layers.{number}.input_layernorm.weight", hidden),
        down=loading.place(torch.cat((first, key_down)).t()),
        down_bias=_down_bias(loading, shape, prefix, first.shape[0]),
        query_norm=query_norm,
        query_up=query_up,
        key_up=None if fold_query else loading.place(key_up.clone()),
        latent_norm=loading.norm(prefix + "kv_a_layernorm.weight", latent, _LATENT_NORM_EPS),
        value_up=None if fold_value else loading.place(value_up.clone().transpose(1, 2)),
        out=loading.place(mixed_out.flatten(0, 1)),
        out_bias=loading.out_bias(prefix),
        heads=count,
        latent=latent,
        width=latent + rope,
    )


def _down_bias(
    loading: Loading, shape: LatentShape, prefix: str, first_width: int
) -> torch.Tensor | None:
    """Return the bias of what `down` gives; a query without low rank has none."""
    if not loading.config.attention_bias:
        return None
    low, latent = shape.q_lora_rank, shape.kv_lora_rank
    first = torch.zeros(first_width, device=loading.device)
    if low is not None:
        first = loading.get(prefix + "q_a_proj.bias", (low,))
    key = loading.get(prefix + "kv_a_proj_with_mqa.bias", (latent + shape.rope,))
    if not shape.interleaved:
        key = _interleave_tail(key[:, None], latent).squeeze(1)
    return loading.place(torch.cat((first, key)))


def _grouped(loading: Loading, shape: GroupedShape, number: int) -> GroupedAttention:
    config, prefix = loading.config, f"model.layers.{number}.self_attn."
    hidden, width = config.hidden_size, shape.head_dim
    heads = loading.shard.part(config.heads)
    kv_heads = loading.shard.kv_heads(shape.kv_heads)

    def rows(kind: str, total: int, mine: slice) -> torch.Tensor:
        """Return weights of some heads, and their bias as a last column: [rows, hidden + 1]."""
        part = (_wide(mine, width),)
        weight = loading.get(f"{prefix}{kind}_proj.weight", (total * width, hidden), part)
        bias = weight.new_zeros(weight.shape[0])
        if config.attention_bias:
            bias = loading.get(f"{prefix}{kind}_proj.bias", (total * width,), part)
        joined = torch.cat((weight, bias[:, None]), dim=1)
        if kind == "v":
            return joined
        return interleave_rows(joined.view(-1, width, hidden + 1)).flatten(0, 1)

    def norm(kind: str, scale: float) -> torch.Tensor:
        gain = loading.get(f"{prefix}{kind}_norm.weight", (width,))
        return loading.place(interleave_rows(gain[:, None]).squeeze(1) * scale)

    qkv = torch.cat(
        (
            rows("q", config.heads, heads),
            rows("k", shape.kv_heads, kv_heads),
            rows("v", shape.kv_heads, kv_heads),
        )
    )
    out = loading.get(
        prefix + "o_proj.weight", (hidden, config.heads * width), (slice(None), _wide(heads, width))
    )
    scale = width**-0.5 * config.rope.softmax_factor
    eps = config.rms_norm_eps
    return GroupedAttention(
        norm=loading.norm(f"model.layers.{number}.input_layernorm.weight", hidden),
        qkv=loading.place(qkv[:, :-1].t().contiguous()),
        qkv_bias=loading.place(qkv[:, -1].contiguous()) if config.attention_bias else None,
        query_norm=RMSNorm.of(norm("q", scale), eps),
        key_norm=RMSNorm.of(norm("k", 1.0), eps),
        out=loading.place(out.t()),
        out_bias=loading.out_bias(prefix),
        heads=length(heads),
        kv_heads=length(kv_heads),
    )


def _interleave_tail(rows: torch.Tensor, kept: int) -> torch.Tensor:
    return torch.cat((rows[:kept], interleave_rows(rows[kept:])))


def _wide(heads: slice, width: int) -> slice:
    return slice(heads.start * width, heads.stop * width)
