"""A small random checkpoint of the DeepSeek-V2 family: `small_checkpoint.py FOLDER`.

Three layers, 16 experts, attention of the real widths, bfloat16, 0.5 GB; the tokenizer is that of
moe-tiny. Any engine serves it; what it says means nothing.
"""

from __future__ import annotations

import json
import shutil
import sys
from pathlib import Path

import torch
from safetensors.torch import save_file

TOKENIZER = Path(__file__).parents[1] / "panel/server/models/moe-tiny"
HIDDEN, HEADS, LATENT, NOPE, ROPE, VALUE = 2048, 16, 512, 128, 64, 128
LAYERS, DENSE, EXPERTS, EXPERT, WIDE, WORDS = 3, 1, 16, 704, 5632, 8192
CONFIG = {
    "architectures": ["DeepseekV2ForCausalLM"],
    "model_type": "deepseek_v2",
    "attention_bias": False,
    "attention_dropout": 0.0,
    "aux_loss_alpha": 0.001,
    "bos_token_id": 0,
    "eos_token_id": 1,
    "first_k_dense_replace": DENSE,
    "hidden_act": "silu",
    "hidden_size": HIDDEN,
    "initializer_range": 0.02,
    "intermediate_size": WIDE,
    "kv_lora_rank": LATENT,
    "max_position_embeddings": 8192,
    "moe_intermediate_size": EXPERT,
    "moe_layer_freq": 1,
    "n_group": 1,
    "n_routed_experts": EXPERTS,
    "n_shared_experts": 2,
    "norm_topk_prob": False,
    "num_attention_heads": HEADS,
    "num_experts_per_tok": 6,
    "num_hidden_layers": LAYERS,
    "num_key_value_heads": HEADS,
    "q_lora_rank": None,
    "qk_nope_head_dim": NOPE,
    "qk_rope_head_dim": ROPE,
    "rms_norm_eps": 1e-06,
    "rope_theta": 10000,
    "routed_scaling_factor": 1.0,
    "scoring_func": "softmax",
    "seq_aux": True,
    "tie_word_embeddings": False,
    "topk_group": 1,
    "topk_method": "greedy",
    "torch_dtype": "bfloat16",
    "use_cache": True,
    "v_head_dim": VALUE,
    "vocab_size": WORDS,
}


def weights() -> dict[str, torch.Tensor]:
    """Return all tensors by name, always the same ones."""
    generator = torch.Generator().manual_seed(0)

    def matrix(*shape: int) -> torch.Tensor:
        return torch.empty(shape, dtype=torch.bfloat16).normal_(0, 0.02, generator=generator)

    def norm(width: int) -> torch.Tensor:
        return torch.ones(width, dtype=torch.bfloat16)

    def mlp(prefix: str, width: int) -> dict[str, torch.Tensor]:
        return {
            f"{prefix}.gate_proj.weight": matrix(width, HIDDEN),
            f"{prefix}.up_proj.weight": matrix(width, HIDDEN),
            f"{prefix}.down_proj.weight": matrix(HIDDEN, width),
        }

    found = {
        "model.embed_tokens.weight": matrix(WORDS, HIDDEN),
        "model.norm.weight": norm(HIDDEN),
        "lm_head.weight": matrix(WORDS, HIDDEN),
    }
    for layer in range(LAYERS):
        at = f"model.layers.{layer}"
        found |= {
            f"{at}.input_layernorm.weight": norm(HIDDEN),
            f"{at}.post_attention_layernorm.weight": norm(HIDDEN),
            f"{at}.self_attn.q_proj.weight": matrix(HEADS * (NOPE + ROPE), HIDDEN),
            f"{at}.self_attn.kv_a_proj_with_mqa.weight": matrix(LATENT + ROPE, HIDDEN),
            f"{at}.self_attn.kv_a_layernorm.weight": norm(LATENT),
            f"{at}.self_attn.kv_b_proj.weight": matrix(HEADS * (NOPE + VALUE), LATENT),
            f"{at}.self_attn.o_proj.weight": matrix(HIDDEN, HEADS * VALUE),
        }
        if layer < DENSE:
            found |= mlp(f"{at}.mlp", WIDE)
            continue
        found[f"{at}.mlp.gate.weight"] = matrix(EXPERTS, HIDDEN)
        found |= mlp(f"{at}.mlp.shared_experts", 2 * EXPERT)
        for expert in range(EXPERTS):
            found |= mlp(f"{at}.mlp.experts.{expert}", EXPERT)
    return found


def main() -> None:
    """Write the folder."""
    folder = Path(sys.argv[1])
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "config.json").write_text(json.dumps(CONFIG, indent=1))
    for name in ("tokenizer.json", "tokenizer_config.json"):
        shutil.copy(TOKENIZER / name, folder)
    save_file(weights(), folder / "model.safetensors", {"format": "pt"})


if __name__ == "__main__":
    main()
