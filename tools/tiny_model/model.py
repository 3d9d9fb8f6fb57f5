"""The model in plain torch: DeepSeek-V3 at a size that trains in minutes.

Parameter names follow the Hugging Face layout, except that the experts of a layer are stacked.
All experts are computed for every token and the unrouted ones are multiplied by zero: four times
the arithmetic of a sparse layer, but two plain matrix products, which a GPU likes better at this
size than any gather.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
import torch.nn.functional as F  # noqa: N812
from torch import Tensor, nn


@dataclass(frozen=True)
class Shape:
    """The numbers of `config.json`, under the same names."""

    vocab_size: int = 4096
    hidden_size: int = 256
    intermediate_size: int = 768
    moe_intermediate_size: int = 96
    num_hidden_layers: int = 5
    first_k_dense_replace: int = 1
    num_attention_heads: int = 8
    kv_lora_rank: int = 64
    qk_nope_head_dim: int = 32
    qk_rope_head_dim: int = 16
    v_head_dim: int = 32
    n_routed_experts: int = 16
    n_shared_experts: int = 1
    num_experts_per_tok: int = 4
    routed_scaling_factor: float = 2.0
    max_position_embeddings: int = 2048
    rope_theta: float = 10000.0
    rms_norm_eps: float = 1e-6


class RMSNorm(nn.Module):
    def __init__(self, size: int, eps: float) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.ones(size))
        self.eps = eps

    def forward(self, x: Tensor) -> Tensor:
        return F.rms_norm(x.float(), self.weight.shape, self.weight, self.eps).to(x.dtype)


def rope_table(shape: Shape, length: int) -> Tensor:
    """Angles of every position, as (2, length, qk_rope_head_dim / 2): cosines, then sines."""
    dim = shape.qk_rope_head_dim
    freq = shape.rope_theta ** (-torch.arange(0, dim, 2, dtype=torch.float32) / dim)
    angle = torch.arange(length, dtype=torch.float32)[:, None] * freq
    return torch.stack([angle.cos(), angle.sin()])


def rotate(x: Tensor, rope: Tensor) -> Tensor:
    """Rotary embedding over interleaved pairs; `x` is (batch, heads, length, dim)."""
    cos, sin = rope[0].to(x.dtype), rope[1].to(x.dtype)
    a, b = x[..., 0::2], x[..., 1::2]
    return torch.cat([a * cos - b * sin, b * cos + a * sin], dim=-1)


class Attention(nn.Module):
    """Multi-head latent attention, in its expanded (training) form."""

    def __init__(self, s: Shape) -> None:
        super().__init__()
        self.shape = s
        self.heads, self.nope, self.rope_dim = (
            s.num_attention_heads,
            s.qk_nope_head_dim,
            s.qk_rope_head_dim,
        )
        hidden, rank = s.hidden_size, s.kv_lora_rank
        self.q_proj = nn.Linear(hidden, self.heads * (self.nope + self.rope_dim), bias=False)
        self.kv_a_proj_with_mqa = nn.Linear(hidden, rank + self.rope_dim, bias=False)
        self.kv_a_layernorm = RMSNorm(rank, s.rms_norm_eps)
        self.kv_b_proj = nn.Linear(rank, self.heads * (self.nope + s.v_head_dim), bias=False)
        self.o_proj = nn.Linear(self.heads * s.v_head_dim, hidden, bias=False)

    def forward(self, x: Tensor, rope: Tensor) -> Tensor:
        return self.attend(*self.heads_of(x, rope), causal=True)

    def heads_of(self, x: Tensor, rope: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        """Queries, keys and values, each (batch, heads, length, head)."""
        batch, length, _ = x.shape
        s = self.shape
        q = self.q_proj(x).view(batch, length, self.heads, -1).transpose(1, 2)
        q_nope, q_rope = q.split([self.nope, self.rope_dim], dim=-1)
        latent, k_rope = self.kv_a_proj_with_mqa(x).split([s.kv_lora_rank, self.rope_dim], dim=-1)
        kv = self.kv_b_proj(self.kv_a_layernorm(latent))
        kv = kv.view(batch, length, self.heads, -1).transpose(1, 2)
        k_nope, v = kv.split([self.nope, s.v_head_dim], dim=-1)
        k_rope = rotate(k_rope[:, None], rope).expand(-1, self.heads, -1, -1)
        q = torch.cat([q_nope, rotate(q_rope, rope)], dim=-1)
        return q, torch.cat([k_nope, k_rope], dim=-1), v

    def attend(self, q: Tensor, k: Tensor, v: Tensor, causal: bool) -> Tensor:
        """What the queries find; `causal` where they are as many as the keys."""
        v = F.pad(v, (0, q.shape[-1] - v.shape[-1]))  # fused attention wants one head size
        out = F.scaled_dot_product_attention(q, k, v, is_causal=causal)
        out = out[..., : self.shape.v_head_dim].transpose(1, 2)
        return self.o_proj(out.reshape(*out.shape[:2], -1))


class MLP(nn.Module):
    def __init__(self, hidden: int, inner: int) -> None:
        super().__init__()
        self.gate_proj = nn.Linear(hidden, inner, bias=False)
        self.up_proj = nn.Linear(hidden, inner, bias=False)
        self.down_proj = nn.Linear(inner, hidden, bias=False)

    def forward(self, x: Tensor) -> Tensor:
        return self.down_proj(F.silu(self.gate_proj(x)) * self.up_proj(x))


class Router(nn.Module):
    """Sigmoid scores; a bias that only the choice sees keeps the experts evenly loaded (noaux_tc).

    The bias is no parameter: `train.py` nudges it after each step by the sign of `load`.
    """

    def __init__(self, s: Shape) -> None:
        super().__init__()
        self.top_k, self.scale = s.num_experts_per_tok, s.routed_scaling_factor
        self.weight = nn.Parameter(torch.empty(s.n_routed_experts, s.hidden_size))
        self.register_buffer("e_score_correction_bias", torch.zeros(s.n_routed_experts))
        self.register_buffer("load", torch.zeros(s.n_routed_experts), persistent=False)

    def forward(self, x: Tensor) -> Tensor:
        """The weight of every expert for every token; zero where it was not chosen."""
        with torch.autocast(x.device.type, enabled=False):
            scores = F.linear(x.float(), self.weight.float()).sigmoid()
        choice = (scores.detach() + self.e_score_correction_bias).topk(self.top_k, dim=-1).indices
        mask = torch.zeros_like(scores).scatter(-1, choice, 1.0)
        self.load.copy_(mask.flatten(0, -2).mean(0))
        weights = scores * mask
        return weights / (weights.sum(-1, keepdim=True) + 1e-20) * self.scale


class Experts(nn.Module):
    def __init__(self, s: Shape) -> None:
        super().__init__()
        experts, inner, hidden = s.n_routed_experts, s.moe_intermediate_size, s.hidden_size
        self.gate_proj = nn.Parameter(torch.empty(experts, inner, hidden))
        self.up_proj = nn.Parameter(torch.empty(experts, inner, hidden))
        self.down_proj = nn.Parameter(torch.empty(experts, hidden, inner))

    def forward(self, x: Tensor, weights: Tensor) -> Tensor:
        hidden = F.silu(F.linear(x, self.gate_proj.flatten(0, 1)))
        hidden = hidden * F.linear(x, self.up_proj.flatten(0, 1))
        hidden = (
            hidden.unflatten(-1, self.gate_proj.shape[:2]) * weights.to(hidden.dtype)[..., None]
        )
        return F.linear(hidden.flatten(-2), self.down_proj.transpose(0, 1).flatten(1))


class MoE(nn.Module):
    def __init__(self, s: Shape) -> None:
        super().__init__()
        self.gate = Router(s)
        self.experts = Experts(s)
        self.shared_experts = MLP(s.hidden_size, s.moe_intermediate_size * s.n_shared_experts)

    def forward(self, x: Tensor) -> Tensor:
        return self.experts(x, self.gate(x)) + self.shared_experts(x)


class Layer(nn.Module):
    def __init__(self, s: Shape, index: int) -> None:
        super().__init__()
        dense = index < s.first_k_dense_replace
        self.input_layernorm = RMSNorm(s.hidden_size, s.rms_norm_eps)
        self.self_attn = Attention(s)
        self.post_attention_layernorm = RMSNorm(s.hidden_size, s.rms_norm_eps)
        self.mlp = MLP(s.hidden_size, s.intermediate_size) if dense else MoE(s)

    def forward(self, x: Tensor, rope: Tensor) -> Tensor:
        x = x + self.self_attn(self.input_layernorm(x), rope)
        return x + self.mlp(self.post_attention_layernorm(x))


class Model(nn.Module):
    """Token ids to logits; the output matrix is the embedding."""

    def __init__(self, shape: Shape) -> None:
        super().__init__()
        self.shape = shape
        self.embed_tokens = nn.Embedding(shape.vocab_size, shape.hidden_size)
        self.layers = nn.ModuleList(Layer(shape, i) for i in range(shape.num_hidden_layers))
        self.norm = RMSNorm(shape.hidden_size, shape.rms_norm_eps)
        rope = rope_table(shape, shape.max_position_embeddings)
        self.register_buffer("rope", rope, persistent=False)
        self.reset()

    def reset(self) -> None:
        """Random weights; those that write to the residual stream start smaller."""
        for name, weight in self.named_parameters():
            if weight.ndim > 1:
                writes = name.endswith(("o_proj.weight", "down_proj.weight", "down_proj"))
                nn.init.normal_(weight, std=0.01 if writes else 0.03)

    def forward(self, ids: Tensor) -> Tensor:
        x = self.embed_tokens(ids)
        rope = self.rope[:, : ids.shape[1]]
        for layer in self.layers:
            x = layer(x, rope)
        return F.linear(self.norm(x), self.embed_tokens.weight)

    def routers(self) -> list[Router]:
        return [m for m in self.modules() if isinstance(m, Router)]
