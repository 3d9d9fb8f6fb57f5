"""The tensors of a draft head's checkpoint, by their headers alone; imports no torch."""

from __future__ import annotations

import json
from pathlib import Path

from panel.server.draft.shape import AUX, DraftShape
from panel.server.shape import ModelError

EMBEDDING = "embed_tokens.weight"
_LAYER = "midlayer."

Shapes = dict[str, tuple[int, ...]]


def stored_shapes(folder: Path) -> Shapes:
    """Return the shape of each tensor in a folder's safetensors files, or raise `ModelError`."""
    shapes: Shapes = {}
    for path in sorted(folder.glob("*.safetensors")):
        try:
            with path.open("rb") as file:
                header = json.loads(file.read(int.from_bytes(file.read(8), "little")))
            header.pop("__metadata__", None)
            shapes |= {name: tuple(entry["shape"]) for name, entry in header.items()}
        except (OSError, ValueError, KeyError, TypeError, OverflowError, MemoryError) as error:
            raise ModelError(f"{path}: is no whole safetensors file: {error}") from None
    if not shapes:
        raise ModelError(
            f"{folder}: no *.safetensors file there; convert a pytorch_model.bin with safetensors"
        )
    return shapes


def wanted_shapes(shape: DraftShape, vocab_size: int) -> Shapes:
    """Return the shape of each tensor that the head is made of; `vocab_size` is the model's."""
    hidden, width = shape.hidden_size, shape.attention.head_dim
    queries, cached = shape.heads * width, shape.attention.kv_heads * width
    shapes = {
        "fc.weight": (hidden, AUX * hidden),
        f"{_LAYER}input_layernorm.weight": (hidden,),
        f"{_LAYER}hidden_norm.weight": (hidden,),
        f"{_LAYER}post_attention_layernorm.weight": (hidden,),
        f"{_LAYER}self_attn.q_proj.weight": (queries, 2 * hidden),
        f"{_LAYER}self_attn.k_proj.weight": (cached, 2 * hidden),
        f"{_LAYER}self_attn.v_proj.weight": (cached, 2 * hidden),
        f"{_LAYER}self_attn.o_proj.weight": (hidden, queries),
        f"{_LAYER}mlp.gate_proj.weight": (shape.intermediate_size, hidden),
        f"{_LAYER}mlp.up_proj.weight": (shape.intermediate_size, hidden),
        f"{_LAYER}mlp.down_proj.weight": (hidden, shape.intermediate_size),
        "norm.weight": (hidden,),
        "lm_head.weight": (shape.vocab_size, hidden),
    }
    if shape.vocab_size < vocab_size:
        shapes["d2t"] = (shape.vocab_size,)
    if shape.own_embedding:
        shapes[EMBEDDING] = (vocab_size, hidden)
    return shapes


def check_tensors(shape: DraftShape, stored: Shapes, vocab_size: int) -> None:
    """Refuse, by `ModelError`, a checkpoint that lacks tensors or has them in other shapes."""
    wanted = wanted_shapes(shape, vocab_size)
    if missing := [name for name in wanted if name not in stored]:
        more = f" and {len(missing) - 1} more" if len(missing) > 1 else ""
        raise ModelError(f"{shape.folder}: the draft head lacks tensor {missing[0]}{more}")
    for name, expected in wanted.items():
        if stored[name] != expected:
            raise ModelError(
                f"{shape.folder}: tensor {name} of the draft head has shape "
                f"{list(stored[name])}, its config asks for {list(expected)}"
            )
