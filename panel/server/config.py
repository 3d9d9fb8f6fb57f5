"""The model's shape, read from a Hugging Face `config.json`."""

from __future__ import annotations

import json
from dataclasses import dataclass
from pathlib import Path
from typing import Any

SHIPPED_MODEL = "moe-tiny"
_SHIPPED_FOLDER = Path(__file__).parent / "models"


class ModelError(Exception):
    """The model folder is missing, corrupt or not served by this engine; names file and way out."""


@dataclass(frozen=True, slots=True)
class ModelConfig:
    """Shape of a DeepSeek-V3 model; sizes in elements."""

    vocab_size: int
    hidden_size: int
    layers: int
    dense_layers: int
    """The first layers, which have a plain feed-forward part."""
    heads: int
    q_lora_rank: int | None
    kv_lora_rank: int
    qk_nope_head_dim: int
    qk_rope_head_dim: int
    v_head_dim: int
    intermediate_size: int
    moe_intermediate_size: int
    routed_experts: int
    shared_experts: int
    experts_per_token: int
    groups: int
    groups_per_token: int
    normalise_weights: bool
    routed_scaling_factor: float
    rms_norm_eps: float
    rope_theta: float
    rope_interleave: bool
    max_context: int
    tied_embeddings: bool

    @property
    def latent_width(self) -> int:
        """Elements of one token in the latent cache of one layer."""
        return self.kv_lora_rank + self.qk_rope_head_dim


def model_folder(path: str) -> Path:
    """Return the folder of `--model-path`; the shipped model goes by its bare name."""
    if path == SHIPPED_MODEL and not Path(path).is_dir():
        return _SHIPPED_FOLDER / SHIPPED_MODEL
    return Path(path)


def read_config(folder: Path) -> ModelConfig:
    """Return the shape of the model in `folder`, or raise `ModelError`."""
    file = folder / "config.json"
    try:
        raw = json.loads(file.read_text())
    except FileNotFoundError:
        raise ModelError(
            f"{folder}: no config.json; --model-path is a checkpoint folder or {SHIPPED_MODEL}"
        ) from None
    except (OSError, ValueError) as error:
        raise ModelError(f"{file}: cannot be read: {error}") from None
    try:
        return parse_config(raw)
    except KeyError as error:
        raise ModelError(f"{file}: {error} is missing") from None
    except (ModelError, TypeError, ValueError) as error:
        raise ModelError(f"{file}: {error}") from None


def parse_config(raw: dict[str, Any]) -> ModelConfig:
    """Return the shape of a `config.json`; what the engine cannot compute is refused."""
    rope = raw.get("rope_parameters") or raw.get("rope_scaling") or {}
    served: list[tuple[str, object, tuple[object, ...]]] = [
        ("model_type", raw.get("model_type"), ("deepseek_v3",)),
        ("hidden_act", raw.get("hidden_act", "silu"), ("silu",)),
        ("scoring_func", raw.get("scoring_func", "sigmoid"), ("sigmoid",)),
        ("topk_method", raw.get("topk_method", "noaux_tc"), ("noaux_tc",)),
        ("moe_layer_freq", raw.get("moe_layer_freq", 1), (1,)),
        ("attention_bias", raw.get("attention_bias", False), (False,)),
        ("quantization_config", raw.get("quantization_config"), (None,)),
        ("rope type", rope.get("rope_type", rope.get("type", "default")), ("default",)),
    ]
    for name, value, known in served:
        if value not in known:
            raise ModelError(f"{name} {value!r} is not served yet; known: {known[0]!r}")
    return ModelConfig(
        vocab_size=int(raw["vocab_size"]),
        hidden_size=int(raw["hidden_size"]),
        layers=int(raw["num_hidden_layers"]),
        dense_layers=min(int(raw["first_k_dense_replace"]), int(raw["num_hidden_layers"])),
        heads=int(raw["num_attention_heads"]),
        q_lora_rank=raw.get("q_lora_rank"),
        kv_lora_rank=int(raw["kv_lora_rank"]),
        qk_nope_head_dim=int(raw["qk_nope_head_dim"]),
        qk_rope_head_dim=int(raw["qk_rope_head_dim"]),
        v_head_dim=int(raw["v_head_dim"]),
        intermediate_size=int(raw["intermediate_size"]),
        moe_intermediate_size=int(raw["moe_intermediate_size"]),
        routed_experts=int(raw["n_routed_experts"]),
        shared_experts=int(raw.get("n_shared_experts") or 0),
        experts_per_token=int(raw["num_experts_per_tok"]),
        groups=int(raw.get("n_group") or 1),
        groups_per_token=int(raw.get("topk_group") or 1),
        normalise_weights=bool(raw.get("norm_topk_prob", True)),
        routed_scaling_factor=float(raw.get("routed_scaling_factor", 1.0)),
        rms_norm_eps=float(raw.get("rms_norm_eps", 1e-6)),
        rope_theta=float(rope.get("rope_theta", raw.get("rope_theta", 10000.0))),
        rope_interleave=bool(raw.get("rope_interleave", True)),
        max_context=int(raw["max_position_embeddings"]),
        tied_embeddings=bool(raw.get("tie_word_embeddings", False)),
    )
