"""Small random checkpoints and what transformers says about them."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from transformers import DeepseekV3Config, DeepseekV3ForCausalLM

BASE: dict[str, Any] = {
    "vocab_size": 512,
    "hidden_size": 64,
    "num_hidden_layers": 3,
    "first_k_dense_replace": 1,
    "num_attention_heads": 8,
    "num_key_value_heads": 8,
    "q_lora_rank": None,
    "kv_lora_rank": 16,
    "qk_nope_head_dim": 16,
    "qk_rope_head_dim": 8,
    "v_head_dim": 16,
    "intermediate_size": 96,
    "moe_intermediate_size": 32,
    "n_routed_experts": 16,
    "num_experts_per_tok": 4,
    "n_shared_experts": 1,
    "n_group": 1,
    "topk_group": 1,
    "tie_word_embeddings": True,
    "max_position_embeddings": 512,
    "num_nextn_predict_layers": 0,
}

SHAPES: dict[str, dict[str, Any]] = {
    "tied": BASE,
    "low-rank-query-groups": BASE
    | {
        "q_lora_rank": 24,
        "tie_word_embeddings": False,
        "n_group": 4,
        "topk_group": 2,
        "n_shared_experts": 2,
        "routed_scaling_factor": 1.7,
    },
    # Too wide a latent to fold the up-projections into their neighbours.
    "factored-halves": BASE
    | {"kv_lora_rank": 64, "qk_nope_head_dim": 8, "v_head_dim": 8, "rope_interleave": False},
    # Too many weights to compute every expert for every token; no shared experts, raw weights.
    "experts-apart": BASE
    | {
        "hidden_size": 256,
        "moe_intermediate_size": 2048,
        "num_hidden_layers": 2,
        "norm_topk_prob": False,
        "routed_scaling_factor": 1.0,
    },
}

MARGIN = 1e-3
"""Where the reference's two best logits are closer, text is not compared any further."""


@dataclass(frozen=True)
class Checkpoint:
    """A checkpoint folder and its reference."""

    folder: Path
    reference: DeepseekV3ForCausalLM

    def logits(self, tokens: list[int]) -> torch.Tensor:
        """Return the reference's logits, [tokens, vocabulary]."""
        with torch.no_grad():
            logits: torch.Tensor = self.reference(torch.tensor([tokens])).logits[0]
        return logits


def make_checkpoint(folder: Path, shape: dict[str, Any], seed: int = 0) -> Checkpoint:
    """Save random weights, large enough for decided argmaxes; return them with the reference."""
    torch.manual_seed(seed)
    model = DeepseekV3ForCausalLM(DeepseekV3Config(**shape)).eval()
    with torch.no_grad():
        for name, weight in model.named_parameters():
            weight.mul_(torch.empty_like(weight).uniform_(0.5, 1.5) if "norm" in name else 4)
        for name, buffer in model.named_buffers():
            if name.endswith("e_score_correction_bias"):
                buffer.normal_(std=0.1)
    model.save_pretrained(folder)
    return Checkpoint(folder, model)


def agreement(reference: Checkpoint, prompt: list[int], answer: list[int]) -> tuple[int, bool]:
    """Return how many tokens of a greedy answer can be compared, and whether those are right."""
    logits = reference.logits(prompt + answer[:-1])[len(prompt) - 1 :]
    best = logits.topk(2, dim=-1)
    close = (best.values[:, 0] - best.values[:, 1] < MARGIN).nonzero()
    compared = int(close[0]) if close.numel() else len(answer)
    return compared, best.indices[:compared, 0].tolist() == answer[:compared]
