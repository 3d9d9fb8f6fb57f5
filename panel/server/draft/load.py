"""Load one rank's part of a draft head."""

from __future__ import annotations

import torch
from safetensors import safe_open

from panel.server.checkpoint import Names, tensor_files
from panel.server.draft.attention import DraftAttention
from panel.server.draft.model import DraftModel
from panel.server.draft.shape import AUX, DraftShape
from panel.server.draft.tensors import EMBEDDING
from panel.server.experts import Dense
from panel.server.loading import Loading
from panel.server.norm import RMSNorm
from panel.server.parallel import length
from panel.server.rope import interleave_rows, rotation_table
from panel.server.shape import ModelError
from panel.server.weights import DummySource, SafetensorsSource, WeightSource

_NAMES = Names(body="", head="lm_head.weight")
_LAYER = "midlayer."


def draft_source(shape: DraftShape, seed: int, device: torch.device, dummy: bool) -> WeightSource:
    """Return where the head's weights come from."""
    if dummy or shape.folder is None:
        return DummySource(seed, device)
    return SafetensorsSource(shape.folder, device=device, names=_NAMES)


def load_draft(
    shape: DraftShape, loading: Loading, embedding: torch.Tensor, context: int
) -> DraftModel:
    """Return the shard's head; `embedding` [vocabulary, hidden] is the model's."""
    hidden, shard = shape.hidden_size, loading.shard
    fused, columns = shard.part(AUX * hidden), shard.part(shape.vocab_size)
    width = shape.intermediate_size
    gate, up, down = loading.mlp(f"{_LAYER}mlp.", width, shard.part(width))
    fuse = loading.get("fc.weight", (hidden, AUX * hidden), (slice(None), fused))
    head = loading.get("lm_head.weight", (shape.vocab_size, hidden), (columns,))

    def norm(name: str) -> RMSNorm:
        return loading.norm(name, hidden, shape.rms_norm_eps)

    ids = token_ids(shape, loading.source, embedding.shape[0])
    if shape.own_embedding:
        embedding = loading.place(loading.get(EMBEDDING, tuple(embedding.shape)))
    return DraftModel(
        fuse=loading.place(fuse.t()),
        fused=fused,
        embedding=embedding,
        embedding_norm=norm(f"{_LAYER}input_layernorm.weight"),
        feature_norm=norm(f"{_LAYER}hidden_norm.weight"),
        norm_before_residual=shape.norm_before_residual,
        attention=_attention(shape, loading),
        feed_forward=Dense(
            norm(f"{_LAYER}post_attention_layernorm.weight"),
            loading.place(torch.cat((gate, up)).t()),
            loading.place(down.t()),
        ),
        norm=norm("norm.weight"),
        head=loading.place(head.t()),
        ids=ids[columns].clone().to(loading.device),
        rotation=rotation_table(shape.rope, context).to(loading.device),
    )


def token_ids(shape: DraftShape, source: WeightSource, vocab_size: int) -> torch.Tensor:
    """Return the model's token for each of the reduced vocabulary, int64 [reduced]."""
    ids = torch.arange(shape.vocab_size)
    if shape.vocab_size == vocab_size or shape.folder is None or isinstance(source, DummySource):
        return ids
    path = tensor_files(shape.folder)["d2t"]
    with safe_open(path, framework="pt") as file:
        # The map says what has to be added.
        ids = ids.add(file.get_tensor("d2t"))
    if not (int(ids.min()) >= 0 and int(ids.max()) < vocab_size):
        raise ModelError(
            f"{path}: the head was made for another model: d2t leads to tokens "
            f"{int(ids.min())} to {int(ids.max())}, the model has {vocab_size}"
        )
    return ids


def _attention(shape: DraftShape, loading: Loading) -> DraftAttention:
    width, inputs = shape.attention.head_dim, 2 * shape.hidden_size
    total_kv = shape.attention.kv_heads
    heads, kv_heads = loading.shard.part(shape.heads), loading.shard.kv_heads(total_kv)
    mine = slice(heads.start * width, heads.stop * width)
    prefix = f"{_LAYER}self_attn."

    def rows(kind: str, total: int, part: slice) -> torch.Tensor:
        wide = slice(part.start * width, part.stop * width)
        weight = loading.get(f"{prefix}{kind}_proj.weight", (total * width, inputs), (wide,))
        if kind == "v":
            return weight
        return interleave_rows(weight.view(-1, width, inputs)).flatten(0, 1)

    query = rows("q", shape.heads, heads) * (width**-0.5 * shape.rope.softmax_factor)
    qkv = torch.cat((query, rows("k", total_kv, kv_heads), rows("v", total_kv, kv_heads)))
    out_shape = (shape.hidden_size, shape.heads * width)
    out = loading.get(f"{prefix}o_proj.weight", out_shape, (slice(None), mine))
    return DraftAttention(
        qkv=loading.place(qkv.t()),
        out=loading.place(out.t()),
        heads=length(heads),
        kv_heads=length(kv_heads),
    )
