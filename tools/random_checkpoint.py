"""Write a checkpoint with random weights in the shape of a model, for measurements.

    python tools/random_checkpoint.py OUT [--config FILE] [--layers N] [--seed 0]

The default shape is DeepSeek-V2-Lite's (30 GB in bfloat16, some 10 s where there is a GPU); that of
a Qwen3-MoE is served too. Its tokenizer knows one word for each token: t0, t1, ...
"""

from __future__ import annotations

import argparse
import json
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import torch
from safetensors.torch import save_file
from tokenizers import Tokenizer
from tokenizers.models import WordLevel
from tokenizers.pre_tokenizers import WhitespaceSplit

MODELS = Path(__file__).parents[1] / "panel/config/data/models"
Shapes = dict[str, tuple[int, ...]]


def attention(config: dict[str, Any], prefix: str) -> Shapes:
    """Return the shapes of an attention."""
    shapes = latent(config) if "kv_lora_rank" in config else grouped(config)
    return {f"{prefix}self_attn.{name}": shape for name, shape in shapes.items()}


def grouped(config: dict[str, Any]) -> Shapes:
    """Return the shapes of an attention whose heads share keys in groups."""
    hidden, width = config["hidden_size"], config["head_dim"]
    heads, groups = (width * config[f"num_{kind}_heads"] for kind in ("attention", "key_value"))
    return {
        "q_proj.weight": (heads, hidden),
        "k_proj.weight": (groups, hidden),
        "v_proj.weight": (groups, hidden),
        "o_proj.weight": (hidden, heads),
        "q_norm.weight": (width,),
        "k_norm.weight": (width,),
    }


def latent(config: dict[str, Any]) -> Shapes:
    """Return the shapes of a latent attention."""
    hidden, heads = config["hidden_size"], config["num_attention_heads"]
    nope, rope = config["qk_nope_head_dim"], config["qk_rope_head_dim"]
    latent, value, low = config["kv_lora_rank"], config["v_head_dim"], config.get("q_lora_rank")
    shapes: Shapes = {
        "kv_a_proj_with_mqa.weight": (latent + rope, hidden),
        "kv_a_layernorm.weight": (latent,),
        "kv_b_proj.weight": (heads * (nope + value), latent),
        "o_proj.weight": (hidden, heads * value),
    }
    if low is None:
        shapes["q_proj.weight"] = (heads * (nope + rope), hidden)
    else:
        shapes["q_a_proj.weight"] = (low, hidden)
        shapes["q_a_layernorm.weight"] = (low,)
        shapes["q_b_proj.weight"] = (heads * (nope + rope), low)
    return shapes


def gated(config: dict[str, Any], prefix: str, width: int) -> Shapes:
    """Return the shapes of a gated feed-forward part."""
    hidden = config["hidden_size"]
    return {
        f"{prefix}gate_proj.weight": (width, hidden),
        f"{prefix}up_proj.weight": (width, hidden),
        f"{prefix}down_proj.weight": (hidden, width),
    }


def layer(config: dict[str, Any], number: int) -> Shapes:
    """Return the shapes of one layer."""
    hidden, prefix = config["hidden_size"], f"model.layers.{number}."
    shapes = attention(config, prefix)
    for name in ("input_layernorm", "post_attention_layernorm"):
        shapes[f"{prefix}{name}.weight"] = (hidden,)
    if number < config.get("first_k_dense_replace", 0):
        return shapes | gated(config, f"{prefix}mlp.", config["intermediate_size"])
    width = config["moe_intermediate_size"]
    experts = config["n_routed_experts" if "n_routed_experts" in config else "num_experts"]
    shapes[f"{prefix}mlp.gate.weight"] = (experts, hidden)
    if config.get("topk_method") == "noaux_tc":
        shapes[f"{prefix}mlp.gate.e_score_correction_bias"] = (experts,)
    if config.get("n_shared_experts"):
        shared = width * config["n_shared_experts"]
        shapes |= gated(config, f"{prefix}mlp.shared_experts.", shared)
    for expert in range(experts):
        shapes |= gated(config, f"{prefix}mlp.experts.{expert}.", width)
    return shapes


def files(config: dict[str, Any]) -> Iterator[tuple[str, Shapes]]:
    """Yield the files of the checkpoint."""
    hidden, vocabulary = config["hidden_size"], config["vocab_size"]
    outer: Shapes = {
        "model.embed_tokens.weight": (vocabulary, hidden),
        "model.norm.weight": (hidden,),
    }
    if not config.get("tie_word_embeddings"):
        outer["lm_head.weight"] = (vocabulary, hidden)
    yield "model-outer.safetensors", outer
    for number in range(config["num_hidden_layers"]):
        yield f"model-{number:03}.safetensors", layer(config, number)


def weights(shapes: Shapes, generator: torch.Generator) -> dict[str, torch.Tensor]:
    """Return random tensors on the host; norms are ones."""
    made = {}
    for name, shape in shapes.items():
        if "norm" in name:
            tensor = torch.ones(shape, dtype=torch.bfloat16)
        else:
            tensor = torch.randn(
                shape, generator=generator, device=generator.device, dtype=torch.bfloat16
            )
            tensor = (tensor * 0.02).cpu()
        made[name] = tensor
    return made


def write_tokenizer(folder: Path, size: int) -> None:
    """Write a tokenizer of `size` words."""
    tokenizer = Tokenizer(WordLevel({f"t{token}": token for token in range(size)}, unk_token="t0"))
    tokenizer.pre_tokenizer = WhitespaceSplit()
    tokenizer.save(str(folder / "tokenizer.json"))


def write(config: dict[str, Any], folder: Path, seed: int = 0) -> None:
    """Write the checkpoint."""
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "config.json").write_text(json.dumps(config, indent=2))
    write_tokenizer(folder, config["vocab_size"])
    device = "cuda" if torch.cuda.is_available() else "cpu"
    generator = torch.Generator(device).manual_seed(seed)
    index: dict[str, str] = {}
    with ThreadPoolExecutor(8) as pool:
        written = []
        for name, shapes in files(config):
            index |= dict.fromkeys(shapes, name)
            tensors = weights(shapes, generator)
            written.append(pool.submit(save_file, tensors, folder / name, {"format": "pt"}))
        for each in written:
            each.result()
    (folder / "model.safetensors.index.json").write_text(
        json.dumps({"metadata": {}, "weight_map": index})
    )


def main() -> None:
    """Write the checkpoint that the words on the command line ask for."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("out", type=Path)
    parser.add_argument("--config", type=Path, default=MODELS / "deepseek-v2-lite.json")
    parser.add_argument("--layers", type=int, help="layers, instead of the config's")
    parser.add_argument("--seed", type=int, default=0)
    args = parser.parse_args()
    began = time.perf_counter()
    config = json.loads(args.config.read_text())
    config.pop("quantization_config", None)
    if args.layers:
        config["num_hidden_layers"] = args.layers
    write(config, args.out, args.seed)
    size = sum(path.stat().st_size for path in args.out.iterdir())
    print(f"{args.out}: {size / 1e9:.1f} GB in {time.perf_counter() - began:.1f} s")


if __name__ == "__main__":
    main()
