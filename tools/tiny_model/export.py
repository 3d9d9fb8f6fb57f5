"""The model as a Hugging Face folder (config.json, model.safetensors) and back.

    python export.py OUT_FOLDER

writes untrained weights of the right shape; `train.py` uses `write` for the trained ones.
"""

from __future__ import annotations

import argparse
import json
from dataclasses import asdict
from pathlib import Path

import torch
from model import Model, Shape
from safetensors.torch import load_file, save_file
from tokenizer import BOS, END, EOS, PAD
from torch import Tensor


def config(shape: Shape) -> dict[str, object]:
    return {
        "architectures": ["DeepseekV3ForCausalLM"],
        "model_type": "deepseek_v3",
        **asdict(shape),
        "num_key_value_heads": shape.num_attention_heads,
        "q_lora_rank": None,
        "moe_layer_freq": 1,
        "n_group": 1,
        "topk_group": 1,
        "norm_topk_prob": True,
        "scoring_func": "sigmoid",
        "topk_method": "noaux_tc",
        "num_nextn_predict_layers": 0,
        "hidden_act": "silu",
        "rope_interleave": True,
        "rope_scaling": None,
        "attention_bias": False,
        "attention_dropout": 0.0,
        "initializer_range": 0.02,
        "tie_word_embeddings": True,
        "use_cache": True,
        "bos_token_id": BOS,
        "eos_token_id": EOS,
        "pad_token_id": PAD,
        "dtype": "bfloat16",
        "torch_dtype": "bfloat16",
    }


def generation_config() -> dict[str, object]:
    return {
        "bos_token_id": BOS,
        "eos_token_id": [EOS, END],
        "pad_token_id": PAD,
        "do_sample": True,
        "temperature": 0.7,
        "top_p": 0.95,
    }


def rename(weights: dict[str, Tensor], dtype: torch.dtype) -> dict[str, Tensor]:
    """Our names to theirs: prefix `model.`, and one tensor for each expert."""
    out: dict[str, Tensor] = {}
    for name, tensor in weights.items():
        head, _, matrix = name.rpartition(".experts.")
        if head:
            for index, expert in enumerate(tensor):
                out[f"model.{head}.experts.{index}.{matrix}.weight"] = expert.to(dtype)
        else:
            keep = name.endswith("e_score_correction_bias")
            out[f"model.{name}"] = tensor.float() if keep else tensor.to(dtype)
    return {name: tensor.clone().contiguous() for name, tensor in out.items()}


def write(model: Model, folder: Path, dtype: torch.dtype = torch.bfloat16) -> None:
    folder.mkdir(parents=True, exist_ok=True)
    described = config(model.shape)
    described["dtype"] = described["torch_dtype"] = str(dtype).removeprefix("torch.")
    for name, content in (("config", described), ("generation_config", generation_config())):
        (folder / f"{name}.json").write_text(json.dumps(content, indent=2) + "\n")
    weights = {name: tensor.detach().cpu() for name, tensor in model.state_dict().items()}
    save_file(rename(weights, dtype), folder / "model.safetensors", metadata={"format": "pt"})
    (folder / "model.safetensors").chmod(0o644)


def read(folder: Path) -> Model:
    """The folder back as our model, in float32."""
    model, stored = Model(Shape()), load_file(folder / "model.safetensors")
    weights: dict[str, Tensor] = {}
    for name, tensor in model.state_dict().items():
        head, _, matrix = name.rpartition(".experts.")
        names = [f"model.{name}"]
        if head:
            names = [f"model.{head}.experts.{i}.{matrix}.weight" for i in range(len(tensor))]
        parts = [stored[part].float() for part in names]
        weights[name] = torch.stack(parts) if head else parts[0]
    model.load_state_dict(weights)
    return model.eval()


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("out", type=Path)
    args = parser.parse_args()
    torch.manual_seed(0)
    write(Model(Shape()), args.out)


if __name__ == "__main__":
    main()
