"""What the `config.json` of each model family means."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping
from dataclasses import replace
from typing import Any

from panel.server.shape import (
    ExpertShape,
    GroupedShape,
    LatentShape,
    ModelConfig,
    ModelError,
    RopeShape,
    RoutingShape,
    Yarn,
)

Raw = Mapping[str, Any]
Rule = tuple[str, object, tuple[object, ...]]
"""(name, value, the values that the engine computes)"""


def _deepseek_v3(raw: Raw, model_class: str) -> ModelConfig:
    _demand(
        [
            ("scoring_func", raw.get("scoring_func", "sigmoid"), ("sigmoid",)),
            ("topk_method", raw.get("topk_method", "noaux_tc"), ("noaux_tc",)),
        ]
    )
    routing = RoutingShape(
        scoring="sigmoid",
        correction=True,
        groups=int(raw.get("n_group") or 1),
        groups_per_token=int(raw.get("topk_group") or 1),
        group_best=2,
        experts_per_token=int(raw["num_experts_per_tok"]),
        normalise=bool(raw.get("norm_topk_prob", True)),
        scale=float(raw.get("routed_scaling_factor", 1.0)),
    )
    return _deepseek(raw, model_class, routing, bool(raw.get("rope_interleave", True)))


def _deepseek_v2(raw: Raw, model_class: str) -> ModelConfig:
    method = raw.get("topk_method", "greedy")
    _demand(
        [
            ("scoring_func", raw.get("scoring_func", "softmax"), ("softmax",)),
            ("topk_method", method, ("greedy", "group_limited_greedy")),
            ("norm_topk_prob", raw.get("norm_topk_prob", False), (False,)),
        ]
    )
    limited = method == "group_limited_greedy"
    routing = RoutingShape(
        scoring="softmax",
        correction=False,
        groups=int(raw["n_group"]) if limited else 1,
        groups_per_token=int(raw["topk_group"]) if limited else 1,
        group_best=1,
        experts_per_token=int(raw["num_experts_per_tok"]),
        normalise=False,
        scale=float(raw.get("routed_scaling_factor", 1.0)),
    )
    return _deepseek(raw, model_class, routing, True)


def _deepseek(raw: Raw, model_class: str, routing: RoutingShape, interleaved: bool) -> ModelConfig:
    _demand([("moe_layer_freq", raw.get("moe_layer_freq", 1), (1,))])
    rope = rope_shape(raw, int(raw["qk_rope_head_dim"]))
    scaling = _rope_parameters(raw)
    # The softmax scale grows with the stretching in this family alone.
    if rope.yarn is not None and scaling.get("mscale_all_dim"):
        mscale = _mscale(rope.yarn.factor, float(scaling["mscale_all_dim"]))
        rope = replace(rope, softmax_factor=mscale * mscale)
    low = raw.get("q_lora_rank")
    width = int(raw["moe_intermediate_size"])
    return _common(
        raw,
        model_class,
        dense=range(int(raw["first_k_dense_replace"])),
        attention=LatentShape(
            q_lora_rank=None if low is None else int(low),
            kv_lora_rank=int(raw["kv_lora_rank"]),
            nope=int(raw["qk_nope_head_dim"]),
            rope=int(raw["qk_rope_head_dim"]),
            v=int(raw["v_head_dim"]),
            interleaved=interleaved,
        ),
        experts=ExpertShape(
            routed=int(raw["n_routed_experts"]),
            width=width,
            shared_width=width * int(raw.get("n_shared_experts") or 0),
            routing=routing,
        ),
        rope=rope,
    )


def _qwen3_moe(raw: Raw, model_class: str) -> ModelConfig:
    _demand([("use_sliding_window", raw.get("use_sliding_window", False), (False,))])
    step = int(raw.get("decoder_sparse_step", 1))
    plain = set(raw.get("mlp_only_layers") or ())
    layers = range(int(raw["num_hidden_layers"]))
    heads = int(raw["num_attention_heads"])
    head_dim = int(raw.get("head_dim") or int(raw["hidden_size"]) // heads)
    return _common(
        raw,
        model_class,
        dense=[n for n in layers if n in plain or (n + 1) % step],
        attention=GroupedShape(kv_heads=int(raw["num_key_value_heads"]), head_dim=head_dim),
        experts=ExpertShape(
            routed=int(raw["num_experts"] if "num_experts" in raw else raw["num_local_experts"]),
            width=int(raw["moe_intermediate_size"]),
            shared_width=0,
            routing=RoutingShape(
                scoring="softmax",
                correction=False,
                groups=1,
                groups_per_token=1,
                group_best=1,
                experts_per_token=int(raw["num_experts_per_tok"]),
                normalise=bool(raw.get("norm_topk_prob", False)),
                scale=1.0,
            ),
        ),
        rope=rope_shape(raw, head_dim),
    )


def _common(
    raw: Raw,
    model_class: str,
    *,
    dense: Iterable[int],
    attention: LatentShape | GroupedShape,
    experts: ExpertShape,
    rope: RopeShape,
) -> ModelConfig:
    _demand(
        [
            ("hidden_act", raw.get("hidden_act", "silu"), ("silu",)),
            ("mlp_bias", raw.get("mlp_bias", False), (False,)),
        ]
    )
    layers = int(raw["num_hidden_layers"])
    routing = experts.routing
    if routing.experts_per_token > experts.routed:
        raise ModelError(
            f"num_experts_per_tok {routing.experts_per_token} is above the "
            f"{experts.routed} routed experts"
        )
    if experts.routed % routing.groups or routing.groups_per_token > routing.groups:
        raise ModelError(
            f"n_group {routing.groups} with topk_group {routing.groups_per_token} does not fit "
            f"{experts.routed} routed experts"
        )
    if routing.groups_per_token * (experts.routed // routing.groups) < routing.experts_per_token:
        raise ModelError(
            f"topk_group {routing.groups_per_token} of {routing.groups} groups leaves fewer "
            f"experts than num_experts_per_tok {routing.experts_per_token}"
        )
    return ModelConfig(
        model_class=model_class,
        vocab_size=int(raw["vocab_size"]),
        hidden_size=int(raw["hidden_size"]),
        layers=layers,
        dense_layers=frozenset(n for n in dense if n < layers),
        heads=int(raw["num_attention_heads"]),
        attention=attention,
        attention_bias=bool(raw.get("attention_bias", False)),
        intermediate_size=int(raw["intermediate_size"]),
        experts=experts,
        rms_norm_eps=float(raw.get("rms_norm_eps", 1e-6)),
        rope=rope,
        max_context=int(raw["max_position_embeddings"]),
        tied_embeddings=bool(raw.get("tie_word_embeddings", False)),
        fp8_block=_fp8_block(raw.get("quantization_config")),
    )


def _demand(rules: list[Rule]) -> None:
    for name, value, known in rules:
        if value not in known:
            served = ", ".join(map(str, known))
            raise ModelError(f"{name} {value!r} is not served; served: {served}")


def _fp8_block(quantization: Raw | None) -> tuple[int, int] | None:
    if not quantization:
        return None
    _demand([("quant_method", quantization.get("quant_method"), ("fp8",))])
    rows, columns = quantization.get("weight_block_size") or (0, 0)
    if rows < 1 or columns < 1:
        raise ModelError("quant_method 'fp8' is served with weight_block_size alone")
    return int(rows), int(columns)


def _rope_parameters(raw: Raw) -> Raw:
    return raw.get("rope_parameters") or raw.get("rope_scaling") or {}


def rope_shape(raw: Raw, width: int) -> RopeShape:
    """Return the rotary embedding of `width` elements that a config asks for."""
    given = _rope_parameters(raw)
    kind = given.get("rope_type", given.get("type", "default"))
    _demand([("rope type", kind, ("default", "yarn"))])
    theta = float(given.get("rope_theta", raw.get("rope_theta", 10000.0)))
    return RopeShape(width, theta, _yarn(raw, given) if kind == "yarn" else None, 1.0)


def _yarn(raw: Raw, given: Raw) -> Yarn:
    original = int(given["original_max_position_embeddings"])
    factor = float(given.get("factor") or int(raw["max_position_embeddings"]) / original)
    attention_factor = given.get("attention_factor")
    if attention_factor is None:
        mscale, all_dim = given.get("mscale"), given.get("mscale_all_dim")
        if mscale and all_dim:
            attention_factor = _mscale(factor, mscale) / _mscale(factor, all_dim)
        else:
            attention_factor = _mscale(factor, 1.0)
    return Yarn(
        factor=factor,
        original_context=original,
        beta_fast=float(given.get("beta_fast") or 32),
        beta_slow=float(given.get("beta_slow") or 1),
        truncate=bool(given.get("truncate", True)),
        attention_factor=float(attention_factor),
    )


def _mscale(factor: float, weight: float) -> float:
    return 0.1 * weight * math.log(factor) + 1.0 if factor > 1 else 1.0


FAMILIES: dict[str, Callable[[Raw, str], ModelConfig]] = {
    "deepseek_v2": _deepseek_v2,
    "deepseek_v3": _deepseek_v3,
    "kimi_k2": _deepseek_v3,
    "qwen3_moe": _qwen3_moe,
}
