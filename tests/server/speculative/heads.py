"""Random draft heads in the layout of public EAGLE-3 checkpoints, and a plain reference of them."""

from __future__ import annotations

import json
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from safetensors.torch import save_file
from torch.nn.functional import rms_norm, scaled_dot_product_attention, silu

from tests.server.checkpoints import Checkpoint

Tensors = dict[str, torch.Tensor]

CONFIG: dict[str, Any] = {
    "architectures": ["LlamaForCausalLMEagle3"],
    "vocab_size": 512,
    "draft_vocab_size": 200,
    "hidden_size": 64,
    "intermediate_size": 96,
    "num_hidden_layers": 1,
    "num_attention_heads": 8,
    "num_key_value_heads": 4,
    "head_dim": 16,
    "rms_norm_eps": 1e-5,
    "rope_theta": 5000.0,
    "eagle_config": {"eagle_aux_hidden_state_layer_ids": [0, 1, 1]},
}


@dataclass(frozen=True)
class Head:
    """A head's folder, and what it computes."""

    folder: Path
    config: dict[str, Any]
    tensors: Tensors
    target: Checkpoint

    def drafts(self, text: list[int], steps: int) -> tuple[list[int], float]:
        """Return the tokens drafted after `text`, and the least margin between the best two."""
        with torch.no_grad():
            known = self.target.reference(torch.tensor([text]), output_hidden_states=True)
        layers = self.config["eagle_config"]["eagle_aux_hidden_state_layer_ids"]
        # Entry n + 1 of transformers' list is what layer n puts out.
        aux = torch.cat([known.hidden_states[layer + 1][0] for layer in layers], dim=-1)
        features = aux @ self.tensors["fc.weight"].t()
        # The entry of a position holds its token and the feature of the position before it.
        entries = features[:-1]
        tokens, margin = list(text[1:]), float("inf")
        for _ in range(steps):
            out = self._layer(torch.tensor(tokens), entries)[-1]
            logits = self._norm("norm", out) @ self.tensors["lm_head.weight"].t()
            best = logits.topk(2)
            margin = min(margin, float(best.values[0] - best.values[1]))
            reduced = int(best.indices[0])
            tokens.append(reduced + int(self.tensors["d2t"][reduced]))
            entries = torch.cat((entries, out[None]))
        return tokens[len(text) - 1 :], margin

    def _norm(self, name: str, x: torch.Tensor) -> torch.Tensor:
        gain = self.tensors[f"{name}.weight"]
        return rms_norm(x, gain.shape, gain, self.config["rms_norm_eps"])

    def _layer(self, tokens: torch.Tensor, features: torch.Tensor) -> torch.Tensor:
        """Return what the layer puts out, [entries, hidden]; entries come in order from 1."""
        embedding = self.tensors.get("embed_tokens.weight")
        if embedding is None:
            embedding = self.target.reference.get_input_embeddings().weight.detach()
        token = self._norm("midlayer.input_layernorm", embedding[tokens])
        normed = self._norm("midlayer.hidden_norm", features)
        both = torch.cat((token, normed), dim=-1)
        before = normed if self.config.get("norm_before_residual") else features
        x = before + self._attention(both)
        mlp = self._norm("midlayer.post_attention_layernorm", x)
        gate, up, down = (
            self.tensors[f"midlayer.mlp.{kind}_proj.weight"] for kind in ("gate", "up", "down")
        )
        return x + (silu(mlp @ gate.t()) * (mlp @ up.t())) @ down.t()

    def _attention(self, both: torch.Tensor) -> torch.Tensor:
        width, count = self.config["head_dim"], both.shape[0]
        pairs = torch.arange(0, width, 2) / width
        angles = torch.outer(torch.arange(1, count + 1), self.config["rope_theta"] ** -pairs)
        cos, sin = angles.cos().repeat(1, 2), angles.sin().repeat(1, 2)

        def heads(kind: str) -> torch.Tensor:
            y = both @ self.tensors[f"midlayer.self_attn.{kind}_proj.weight"].t()
            y = y.view(count, -1, width).transpose(0, 1)
            if kind != "v":
                halves = torch.cat((-y[..., width // 2 :], y[..., : width // 2]), dim=-1)
                y = y * cos + halves * sin
            return y.repeat_interleave(self.config["num_attention_heads"] // y.shape[0], dim=0)

        mixed = scaled_dot_product_attention(heads("q"), heads("k"), heads("v"), is_causal=True)
        flat = mixed.transpose(0, 1).reshape(count, -1)
        return flat @ self.tensors["midlayer.self_attn.o_proj.weight"].t()


def make_head(
    folder: Path, target: Checkpoint, *, own_embedding: bool = False, **changed: Any
) -> Head:
    """Save a head of random weights for `target` in `folder`."""
    from panel.server.config import read_config
    from panel.server.draft.shape import parse_draft
    from panel.server.draft.tensors import wanted_shapes

    config = CONFIG | changed
    generator = torch.Generator().manual_seed(5)
    model = read_config(target.folder)
    shapes = wanted_shapes(parse_draft(config, model, folder), model.vocab_size)
    if own_embedding:
        shapes["embed_tokens.weight"] = (model.vocab_size, model.hidden_size)
    tensors: Tensors = {}
    for name, shape in shapes.items():
        if "norm" in name:
            tensors[name] = torch.rand(shape, generator=generator) + 0.5
        elif name != "d2t":
            tensors[name] = 2 * torch.randn(shape, generator=generator) / shape[-1] ** 0.5
    reduced = config["draft_vocab_size"]
    kept = torch.randperm(model.vocab_size, generator=generator)[:reduced].sort().values
    tensors["d2t"] = kept - torch.arange(reduced)
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "config.json").write_text(json.dumps(config))
    save_file(tensors, folder / "model.safetensors")
    return Head(folder, config, tensors, target)
