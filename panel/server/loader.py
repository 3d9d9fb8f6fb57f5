"""Build one rank's shard of the model from a source of weights.

Weights are kept as [input, output]; projections of the same input are one matrix.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import fields, is_dataclass

import torch

from panel.server.attention import Attention
from panel.server.config import ModelConfig
from panel.server.experts import (
    TOGETHER_LIMIT,
    Dense,
    ExpertsApart,
    ExpertsTogether,
    FeedForward,
)
from panel.server.model import Layer, Model
from panel.server.norm import RMSNorm
from panel.server.parallel import Shard
from panel.server.rope import interleave_rows, rotation_table
from panel.server.routing import Router
from panel.server.weights import WeightSource

_LATENT_NORM_EPS = 1e-6
"""The reference ignores the config's epsilon in the two norms of the latents."""

Target = tuple[torch.device, torch.dtype]


def load_model(
    config: ModelConfig,
    shard: Shard,
    source: WeightSource,
    device: torch.device,
    dtype: torch.dtype,
    max_context: int,
    progress: Callable[[int, int], None],
) -> Model:
    """Return the shard's model; `progress` is called with (parts done, parts in all)."""
    loader = _Loader(config, shard, source, device, dtype)
    total = config.layers + 1
    vocabulary = (config.vocab_size, config.hidden_size)
    embedding = loader.place(source.get("model.embed_tokens.weight", vocabulary))
    part = shard.part(config.vocab_size)
    if config.tied_embeddings:
        head = embedding[part].t()
    else:
        head = loader.place(source.get("lm_head.weight", vocabulary, (part,)).t())
    norm = loader.norm("model.norm.weight", config.hidden_size, config.rms_norm_eps)
    progress(1, total)
    layers = []
    for number in range(config.layers):
        layers.append(Layer(loader.attention(number), loader.feed_forward(number)))
        progress(number + 2, total)
    rotation = rotation_table(config.qk_rope_head_dim, config.rope_theta, max_context).to(device)
    return Model(embedding, rotation, layers, norm, head)


def count_bytes(part: object) -> int:
    """Return the bytes of all tensors inside a model or a part of it; a shared tensor once."""
    storages: dict[int, int] = {}

    def visit(value: object) -> None:
        if isinstance(value, torch.Tensor):
            storage = value.untyped_storage()
            storages[storage.data_ptr()] = storage.nbytes()
        elif is_dataclass(value):
            for field in fields(value):
                visit(getattr(value, field.name))
        elif isinstance(value, list):
            for item in value:
                visit(item)

    visit(part)
    return sum(storages.values())


def _folding_pays(outer: int, inner: int, latent: int) -> bool:
    """True where outer x latent weights are at most twice those of outer x inner x latent."""
    return outer * latent <= 2 * inner * (outer + latent)


class _Loader:
    def __init__(
        self,
        config: ModelConfig,
        shard: Shard,
        source: WeightSource,
        device: torch.device,
        dtype: torch.dtype,
    ) -> None:
        self._config = config
        self._shard = shard
        self._get = source.get
        self._device = device
        self._dtype = dtype

    def place(self, tensor: torch.Tensor) -> torch.Tensor:
        return tensor.to(self._device, self._dtype)

    def norm(self, name: str, width: int, eps: float) -> RMSNorm:
        return RMSNorm.of(self.place(self._get(name, (width,))), eps)

    def attention(self, number: int) -> Attention:
        config, prefix = self._config, f"model.layers.{number}.self_attn."
        hidden, latent = config.hidden_size, config.kv_lora_rank
        nope, rope, v = config.qk_nope_head_dim, config.qk_rope_head_dim, config.v_head_dim
        heads = self._shard.part(config.heads)
        count = heads.stop - heads.start

        def of_heads(width: int) -> slice:
            return slice(heads.start * width, heads.stop * width)

        low = config.q_lora_rank
        query_input = hidden if low is None else low
        name = "q_proj.weight" if low is None else "q_b_proj.weight"
        query = self._get(
            prefix + name,
            (config.heads * (nope + rope), query_input),
            (of_heads(nope + rope),),
        ).view(count, nope + rope, query_input)
        query = query * (nope + rope) ** -0.5
        query_nope, query_rope = query.split_with_sizes((nope, rope), dim=1)
        key_down = self._get(prefix + "kv_a_proj_with_mqa.weight", (latent + rope, hidden))
        if not config.rope_interleave:
            query_rope = interleave_rows(query_rope)
            key_down = torch.cat((key_down[:latent], interleave_rows(key_down[latent:])))
        up = self._get(
            prefix + "kv_b_proj.weight", (config.heads * (nope + v), latent), (of_heads(nope + v),)
        ).view(count, nope + v, latent)
        key_up, value_up = up.split_with_sizes((nope, v), dim=1)
        out = self._get(
            prefix + "o_proj.weight", (hidden, config.heads * v), (slice(None), of_heads(v))
        ).view(hidden, count, v)

        fold_query = _folding_pays(query_input, nope, latent)
        if fold_query:
            query_nope = key_up.transpose(1, 2) @ query_nope
        query = torch.cat((query_nope, query_rope), dim=1).flatten(0, 1)
        fold_value = _folding_pays(hidden, v, latent)
        mixed_out = out.permute(1, 2, 0)
        if fold_value:
            mixed_out = value_up.transpose(1, 2) @ mixed_out

        if low is None:
            first, query_norm, query_up = query, None, None
        else:
            first = self._get(prefix + "q_a_proj.weight", (low, hidden))
            query_norm = self.norm(prefix + "q_a_layernorm.weight", low, _LATENT_NORM_EPS)
            query_up = self.place(query.t())
        return Attention(
            norm=self.norm(
                f"model.layers.{number}.input_layernorm.weight", hidden, config.rms_norm_eps
            ),
            down=self.place(torch.cat((first, key_down)).t()),
            query_norm=query_norm,
            query_up=query_up,
            key_up=None if fold_query else self.place(key_up),
            latent_norm=self.norm(prefix + "kv_a_layernorm.weight", latent, _LATENT_NORM_EPS),
            value_up=None if fold_value else self.place(value_up.transpose(1, 2)),
            out=self.place(mixed_out.flatten(0, 1)),
            heads=count,
            latent=latent,
            width=config.latent_width,
        )

    def feed_forward(self, number: int) -> FeedForward:
        config = self._config
        norm = self.norm(
            f"model.layers.{number}.post_attention_layernorm.weight",
            config.hidden_size,
            config.rms_norm_eps,
        )
        prefix = f"model.layers.{number}.mlp."
        if number < config.dense_layers:
            part = self._shard.part(config.intermediate_size)
            gate, up, down = self._mlp(prefix, config.intermediate_size, part)
            return Dense(norm, self.place(torch.cat((gate, up)).t()), self.place(down.t()))
        return self._experts(norm, prefix)

    def _mlp(self, prefix: str, width: int, part: slice) -> tuple[torch.Tensor, ...]:
        """Return the part's gate and up [columns, hidden] and down [hidden, columns]."""
        hidden = self._config.hidden_size
        return (
            self._get(prefix + "gate_proj.weight", (width, hidden), (part,)),
            self._get(prefix + "up_proj.weight", (width, hidden), (part,)),
            self._get(prefix + "down_proj.weight", (hidden, width), (slice(None), part)),
        )

    def _experts(self, norm: RMSNorm, prefix: str) -> FeedForward:
        config, shard = self._config, self._shard
        count, hidden = config.routed_experts, config.hidden_size
        router = Router(
            self._get(prefix + "gate.e_score_correction_bias", (count,)).to(self._device),
            config.experts_per_token,
            config.groups,
            config.groups_per_token,
            config.normalise_weights,
        )
        route = self._get(prefix + "gate.weight", (count, hidden))
        width = config.moe_intermediate_size
        part = shard.expert_part(width)
        local = shard.experts(count)
        routed = [self._mlp(f"{prefix}experts.{expert}.", width, part) for expert in local]
        gates, ups, downs = (list(kind) for kind in zip(*routed, strict=True))
        downs = [down * config.routed_scaling_factor for down in downs]
        shared: tuple[torch.Tensor, ...] = (
            route.new_empty(0, hidden),
            route.new_empty(0, hidden),
            route.new_empty(hidden, 0),
        )
        if config.shared_experts:
            shared_width = width * config.shared_experts
            shared = self._mlp(prefix + "shared_experts.", shared_width, shard.part(shared_width))
        columns = part.stop - part.start
        if 3 * len(local) * columns * hidden > TOGETHER_LIMIT:
            return ExpertsApart(
                norm,
                router,
                self.place(route.t()),
                local.start,
                self.place(
                    torch.stack([torch.cat(pair).t() for pair in zip(gates, ups, strict=True)])
                ),
                self.place(torch.stack([down.t() for down in downs])),
                self.place(torch.cat(shared[:2]).t()),
                self.place(shared[2].t()),
            )
        return ExpertsTogether(
            norm,
            router,
            self.place(torch.cat((*gates, shared[0], *ups, shared[1], route)).t()),
            self.place(torch.cat((*downs, shared[2]), dim=1).t()),
            torch.tensor(local, device=self._device).repeat_interleave(columns),
        )
