"""Small random checkpoints and what transformers says about them."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import torch
from transformers import (
    DeepseekV2Config,
    DeepseekV2ForCausalLM,
    DeepseekV3Config,
    DeepseekV3ForCausalLM,
    PreTrainedModel,
    Qwen3MoeConfig,
    Qwen3MoeForCausalLM,
)

Shape = dict[str, Any]

COMMON: Shape = {
    "vocab_size": 512,
    "hidden_size": 64,
    "num_hidden_layers": 3,
    "num_attention_heads": 8,
    "intermediate_size": 96,
    "moe_intermediate_size": 32,
    "num_experts_per_tok": 4,
    "tie_word_embeddings": True,
    "max_position_embeddings": 512,
}

BASE: Shape = COMMON | {
    "first_k_dense_replace": 1,
    "num_key_value_heads": 8,
    "q_lora_rank": None,
    "kv_lora_rank": 16,
    "qk_nope_head_dim": 16,
    "qk_rope_head_dim": 8,
    "v_head_dim": 16,
    "n_routed_experts": 16,
    "n_shared_experts": 1,
    "n_group": 1,
    "topk_group": 1,
    "num_nextn_predict_layers": 0,
}

GROUPS: Shape = {"n_group": 4, "topk_group": 2}

YARN: Shape = {
    "rope_parameters": {
        "rope_type": "yarn",
        "rope_theta": 10000.0,
        "factor": 8.0,
        "original_max_position_embeddings": 64,
        "beta_fast": 32,
        "beta_slow": 1,
        "mscale": 0.7,
        "mscale_all_dim": 1.0,
    }
}

# Too wide a latent to fold the up-projections into their neighbours.
FACTORED: Shape = {"kv_lora_rank": 64, "qk_nope_head_dim": 8, "v_head_dim": 8}


@dataclass(frozen=True)
class Family:
    """A model of transformers."""

    config: Callable[..., Any]
    model: Callable[..., PreTrainedModel]
    shape: Shape


V3 = Family(DeepseekV3Config, DeepseekV3ForCausalLM, BASE)
V2 = Family(DeepseekV2Config, DeepseekV2ForCausalLM, BASE | {"topk_method": "greedy"})
QWEN3 = Family(
    Qwen3MoeConfig,
    Qwen3MoeForCausalLM,
    COMMON | {"num_key_value_heads": 4, "head_dim": 16, "num_experts": 16, "norm_topk_prob": True},
)

SHAPES: dict[str, tuple[Family, Shape]] = {
    "v3-tied": (V3, {}),
    "v3-low-rank-groups": (
        V3,
        GROUPS
        | {
            "q_lora_rank": 24,
            "tie_word_embeddings": False,
            "n_shared_experts": 2,
            "routed_scaling_factor": 1.7,
        },
    ),
    "v3-factored-halves-yarn": (
        V3,
        FACTORED | YARN | {"rope_interleave": False, "attention_bias": True, "q_lora_rank": 24},
    ),
    # Too many weights to compute every expert for every token; raw weights.
    "v3-apart": (
        V3,
        {
            "hidden_size": 256,
            "moe_intermediate_size": 2048,
            "num_hidden_layers": 2,
            "norm_topk_prob": False,
            "routed_scaling_factor": 1.0,
        },
    ),
    "v2-lite-yarn": (V2, FACTORED | YARN),
    "v2-groups-bias": (
        V2,
        GROUPS
        | {
            "topk_method": "group_limited_greedy",
            "q_lora_rank": 24,
            "n_shared_experts": 2,
            "routed_scaling_factor": 4.0,
            "attention_bias": True,
            "tie_word_embeddings": False,
        },
    ),
    "qwen3": (QWEN3, {"tie_word_embeddings": False}),
    "qwen3-bias-sparse": (
        QWEN3,
        YARN
        | {
            "attention_bias": True,
            "norm_topk_prob": False,
            "decoder_sparse_step": 2,
            "num_key_value_heads": 2,
        },
    ),
}

MARGIN = 1e-3
"""Where the reference's two best logits are closer, text is not compared any further."""


@dataclass(frozen=True)
class Checkpoint:
    """A checkpoint folder and its reference."""

    folder: Path
    reference: PreTrainedModel
    _known: dict[tuple[int, ...], torch.Tensor] = field(default_factory=dict)

    def logits(self, tokens: list[int]) -> torch.Tensor:
        """Return the reference's logits, [tokens, vocabulary]."""
        key = tuple(tokens)
        if key not in self._known:
            with torch.no_grad():
                self._known[key] = self.reference(torch.tensor([tokens])).logits[0]
        return self._known[key]


def make_checkpoint(folder: Path, family: Family, shape: Shape, **saving: object) -> Checkpoint:
    """Save random weights, large enough for decided argmaxes; return them with the reference."""
    torch.manual_seed(0)
    model = family.model(family.config(**family.shape | shape)).eval()
    with torch.no_grad():
        for name, weight in model.named_parameters():
            if "norm" in name:
                weight.mul_(torch.empty_like(weight).uniform_(0.5, 1.5))
            elif name.endswith("bias"):
                weight.normal_(std=0.1)
            else:
                weight.mul_(4)
        for name, buffer in model.named_buffers():
            if name.endswith("e_score_correction_bias"):
                buffer.normal_(std=0.1)
    model.save_pretrained(folder, **saving)
    return Checkpoint(folder, model)


class Checkpoints:
    """Checkpoints by name, each made when it is first asked for."""

    def __init__(self, root: Path) -> None:
        self._root = root
        self._made: dict[str, Checkpoint] = {}

    def __getitem__(self, name: str) -> Checkpoint:
        if name not in self._made:
            family, shape = SHAPES[name]
            self._made[name] = make_checkpoint(self._root / name, family, shape)
        return self._made[name]


def agreement(reference: Checkpoint, prompt: list[int], answer: list[int]) -> tuple[int, bool]:
    """Return how many tokens of a greedy answer can be compared, and whether those are right."""
    logits = reference.logits(prompt + answer[:-1])[len(prompt) - 1 :]
    best = logits.topk(2, dim=-1)
    close = (best.values[:, 0] - best.values[:, 1] < MARGIN).nonzero()
    compared = int(close[0]) if close.numel() else len(answer)
    return compared, best.indices[:compared, 0].tolist() == answer[:compared]
