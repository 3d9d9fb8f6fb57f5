"""The draft head in plain torch: one Llama layer over a token and what the model knew before it.

The entry at position p sees the token there and the feature of position p - 1, which stands for the
model's hidden states after three of its layers; it predicts the token at p + 1. What the layer puts
out stands in for the feature of position p, so that the head can go on alone (EAGLE-3).
"""

from __future__ import annotations

import json
from dataclasses import dataclass
from pathlib import Path

import torch
import torch.nn.functional as F  # noqa: N812
from model import MLP, Model, RMSNorm
from safetensors.torch import save_file
from torch import Tensor, nn

AUX_LAYERS = (0, 2, 4)
"""The model's layers whose outputs make up a feature."""


@dataclass(frozen=True)
class HeadShape:
    """The numbers of `config.json`, under the same names."""

    vocab_size: int = 4096
    draft_vocab_size: int = 2432
    hidden_size: int = 256
    intermediate_size: int = 768
    num_attention_heads: int = 8
    num_key_value_heads: int = 8
    head_dim: int = 32
    max_position_embeddings: int = 2048
    rope_theta: float = 10000.0
    rms_norm_eps: float = 1e-6


def rotation(shape: HeadShape, length: int, device: torch.device) -> Tensor:
    """Cosines, then sines, (2, length, head_dim)."""
    pairs = torch.arange(0, shape.head_dim, 2, dtype=torch.float32, device=device)
    frequencies = shape.rope_theta ** (-pairs / shape.head_dim)
    angles = torch.arange(length, device=device)[:, None] * frequencies
    return torch.stack([angles.cos(), angles.sin()]).repeat(1, 1, 2)


def rotate(x: Tensor, rope: Tensor) -> Tensor:
    """Rotary embedding of halves, as Llama has it; `x` is (batch, heads, length, head_dim)."""
    a, b = x.chunk(2, dim=-1)
    return x * rope[0].to(x.dtype) + torch.cat([-b, a], dim=-1) * rope[1].to(x.dtype)


@dataclass
class Memory:
    """Keys and values of each step so far: those of true features, then the head's own."""

    keys: list[Tensor]
    values: list[Tensor]


class Attention(nn.Module):
    def __init__(self, s: HeadShape) -> None:
        super().__init__()
        self.shape = s
        queries, cached = s.num_attention_heads * s.head_dim, s.num_key_value_heads * s.head_dim
        self.q_proj = nn.Linear(2 * s.hidden_size, queries, bias=False)
        self.k_proj = nn.Linear(2 * s.hidden_size, cached, bias=False)
        self.v_proj = nn.Linear(2 * s.hidden_size, cached, bias=False)
        self.o_proj = nn.Linear(queries, s.hidden_size, bias=False)

    def forward(self, x: Tensor, memory: Memory) -> Tensor:
        """Step n: at position p, true entries up to p - n and the head's own n after them."""
        batch, length, _ = x.shape
        rope = rotation(self.shape, length, x.device)

        def heads(y: Tensor) -> Tensor:
            y = y.view(batch, length, -1, self.shape.head_dim).transpose(1, 2)
            return y.repeat_interleave(self.shape.num_attention_heads // y.shape[1], dim=1)

        query = rotate(heads(self.q_proj(x)), rope)
        memory.keys.append(rotate(heads(self.k_proj(x)), rope))
        memory.values.append(heads(self.v_proj(x)))
        step = len(memory.keys) - 1
        if step == 0:
            out = F.scaled_dot_product_attention(
                query, memory.keys[0], memory.values[0], is_causal=True
            )
        else:
            out = self._mixed(query, memory, step)
        return self.o_proj(out.transpose(1, 2).reshape(batch, length, -1))

    def _mixed(self, query: Tensor, memory: Memory, step: int) -> Tensor:
        length = query.shape[2]
        visible = torch.ones(length, length, dtype=torch.bool, device=query.device).tril(-step)
        scores = (query @ memory.keys[0].mT).masked_fill(~visible, float("-inf"))
        # The nth own entry behind position p is the one of step `n` at position p - step + n.
        own = range(1, step + 1)
        keys = [_later(memory.keys[n], step - n) for n in own]
        values = [_later(memory.values[n], step - n) for n in own]
        scores = torch.cat([scores, *((query * key).sum(-1, keepdim=True) for key in keys)], -1)
        weights = (scores * self.shape.head_dim**-0.5).float().softmax(-1).to(query.dtype)
        out = weights[..., :length] @ memory.values[0]
        for n, value in enumerate(values):
            out = out + weights[..., length + n, None] * value
        return out


def _later(x: Tensor, positions: int) -> Tensor:
    """Move (batch, heads, length, n) towards the end; what comes in at the front is void."""
    return F.pad(x, (0, 0, positions, 0))[:, :, : x.shape[2]]


class DraftLayer(nn.Module):
    def __init__(self, s: HeadShape) -> None:
        super().__init__()
        self.input_layernorm = RMSNorm(s.hidden_size, s.rms_norm_eps)
        self.hidden_norm = RMSNorm(s.hidden_size, s.rms_norm_eps)
        self.self_attn = Attention(s)
        self.post_attention_layernorm = RMSNorm(s.hidden_size, s.rms_norm_eps)
        self.mlp = MLP(s.hidden_size, s.intermediate_size)

    def forward(self, embedded: Tensor, feature: Tensor, memory: Memory) -> Tensor:
        both = torch.cat([self.input_layernorm(embedded), self.hidden_norm(feature)], dim=-1)
        x = feature + self.self_attn(both, memory)
        return x + self.mlp(self.post_attention_layernorm(x))


class DraftHead(nn.Module):
    """`kept` are the token ids of the reduced vocabulary, ascending."""

    def __init__(self, shape: HeadShape, kept: Tensor) -> None:
        super().__init__()
        self.shape = shape
        self.fc = nn.Linear(len(AUX_LAYERS) * shape.hidden_size, shape.hidden_size, bias=False)
        self.midlayer = DraftLayer(shape)
        self.norm = RMSNorm(shape.hidden_size, shape.rms_norm_eps)
        self.lm_head = nn.Linear(shape.hidden_size, shape.draft_vocab_size, bias=False)
        self.register_buffer("kept", kept)

    @torch.no_grad()
    def start_from(self, model: Model) -> None:
        """Begin as one who repeats the last layer's view: its norm, its output rows."""
        for name, weight in self.midlayer.named_parameters():
            if weight.ndim > 1:
                nn.init.normal_(weight, std=0.01 if "o_proj" in name or "down" in name else 0.03)
        hidden = self.shape.hidden_size
        self.fc.weight.zero_()
        self.fc.weight[:, -hidden:] = torch.eye(hidden)
        self.norm.weight.copy_(model.norm.weight)
        self.lm_head.weight.copy_(model.embed_tokens.weight[self.kept.cpu()])

    def logits(self, hidden: Tensor) -> Tensor:
        """Over the reduced vocabulary."""
        return self.lm_head(self.norm(hidden))


def write(head: DraftHead, folder: Path) -> None:
    """The folder of a public EAGLE-3 checkpoint."""
    folder.mkdir(parents=True, exist_ok=True)
    shape = head.shape
    config = {
        "architectures": ["LlamaForCausalLMEagle3"],
        "model_type": "llama",
        **vars(shape),
        "target_hidden_size": shape.hidden_size,
        "num_hidden_layers": 1,
        "hidden_act": "silu",
        "attention_bias": False,
        "mlp_bias": False,
        "rope_scaling": None,
        "tie_word_embeddings": False,
        "eagle_config": {
            "use_aux_hidden_state": True,
            "eagle_aux_hidden_state_layer_ids": list(AUX_LAYERS),
        },
        "torch_dtype": "bfloat16",
    }
    (folder / "config.json").write_text(json.dumps(config, indent=2) + "\n")
    kept = head.kept.cpu()
    tensors = {
        name: tensor.detach().cpu().bfloat16().contiguous()
        for name, tensor in head.state_dict().items()
        if name != "kept"
    }
    # What has to be added to a reduced id, and which of all ids have one.
    tensors["d2t"] = kept - torch.arange(len(kept))
    tensors["t2d"] = torch.zeros(shape.vocab_size, dtype=torch.bool).index_fill(0, kept, True)
    save_file(tensors, folder / "model.safetensors", metadata={"format": "pt"})
    (folder / "model.safetensors").chmod(0o644)
