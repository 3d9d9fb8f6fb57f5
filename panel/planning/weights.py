"""Bytes of a whole model's weights by part: counted from its headers, or reckoned by its shape."""

from __future__ import annotations

import json
import math
import re
from enum import StrEnum
from pathlib import Path
from typing import NamedTuple

from panel.domain.errors import UsageError
from panel.planning.model import Model
from panel.server.shape import LatentShape

_MOST_HEADER = 100 << 20
"""The format's own limit."""


class Part(StrEnum):
    """What weights are for: the parts differ in how they are split over ranks."""

    ATTENTION = "attention"
    WHOLE = "whole on each rank"
    """Norms, routers and low-rank projections, which every rank holds whole."""
    DENSE = "dense layers"
    EXPERTS = "routed experts"
    SHARED = "shared experts"
    EMBEDDING = "embedding and head"
    VISION = "vision tower"
    MTP = "prediction layers"
    """Layers for speculation that come with the model."""


class Weights(NamedTuple):
    """Bytes of all ranks together, each weight once."""

    parts: dict[Part, int]
    counted: bool
    """True from headers; False reckoned from the config alone."""


class Tensor(NamedTuple):
    """One line of a header."""

    name: str
    size: int
    """Bytes."""


def weigh(model: Model) -> Weights:
    """Return the weights of a model: from its headers where it is here, else from its shape."""
    if model.folder is not None and any(model.folder.glob("*.safetensors")):
        return _counted(model, model.folder)
    return Weights(_reckoned(model), counted=False)


def read_headers(folder: Path) -> list[Tensor]:
    """Return all tensors of a checkpoint without reading any weight. Raises `UsageError`."""
    index = folder / "model.safetensors.index.json"
    paths = sorted(folder.glob("*.safetensors"))
    if index.exists():
        try:
            names = sorted(set(json.loads(index.read_text())["weight_map"].values()))
        except (OSError, ValueError, KeyError, TypeError, AttributeError) as error:
            raise UsageError(f"{index}: cannot be read: {error!r}") from None
        paths = [folder / name for name in names]
    return [tensor for path in paths for tensor in _header(path)]


def part_of(name: str, layers: int) -> Part:
    """Return the part that a tensor of a checkpoint belongs to; `layers`: those of the shape."""
    number = re.search(r"\blayers\.(\d+)\.", name)
    if re.search(r"vision|visual|mm_projector", name):
        return Part.VISION
    if number and int(number[1]) >= layers:
        return Part.MTP
    for pattern, part in _PATTERNS:
        if pattern.search(name):
            return part
    return Part.WHOLE


_PATTERNS = tuple(
    (re.compile(pattern), part)
    for pattern, part in (
        (r"embed_tokens|lm_head", Part.EMBEDDING),
        (r"norm|\.(q_a_proj|kv_a_proj_with_mqa)\.|mlp\.gate\.", Part.WHOLE),
        (r"shared_experts?\.", Part.SHARED),
        (r"\.experts\.", Part.EXPERTS),
        (r"self_attn\.", Part.ATTENTION),
        (r"mlp\.", Part.DENSE),
    )
)


def _counted(model: Model, folder: Path) -> Weights:
    parts: dict[Part, int] = {}
    for tensor in read_headers(folder):
        part = part_of(tensor.name, model.shape.layers)
        parts[part] = parts.get(part, 0) + tensor.size
    return Weights(parts, counted=True)


def _header(path: Path) -> list[Tensor]:
    try:
        with path.open("rb") as file:
            size = int.from_bytes(file.read(8), "little")
            if not 2 <= size <= _MOST_HEADER:
                raise ValueError("no header of safetensors")
            table = json.loads(file.read(size))
        return [
            Tensor(name, end - begin)
            for name, entry in table.items()
            if name != "__metadata__"
            for begin, end in [entry["data_offsets"]]
        ]
    except (OSError, ValueError, KeyError, TypeError, AttributeError) as error:
        raise UsageError(f"{path}: cannot be read ({error}); copy the file anew") from None


def _reckoned(model: Model) -> dict[Part, int]:
    shape = model.shape
    hidden, experts, layers = shape.hidden_size, shape.experts, shape.layers
    moe, mlp = len(shape.expert_layers), 3 * hidden
    split, whole = _attention(model)
    one = "model.layers.1.mlp.experts.0.gate_proj"
    shared = "model.layers.1.mlp.shared_experts.gate_proj"
    expert_layer = (
        experts.routed * mlp * experts.width * model.bytes_of(one)
        + mlp * experts.shared_width * model.bytes_of(shared)
        + hidden * experts.routed * model.width
    )
    amounts = {
        Part.ATTENTION: layers * split,
        Part.WHOLE: layers * (whole + 2 * hidden * model.width)
        + moe * hidden * experts.routed * model.width,
        Part.DENSE: len(shape.dense_layers)
        * mlp
        * shape.intermediate_size
        * model.bytes_of("model.layers.0.mlp.gate_proj"),
        Part.EXPERTS: moe * experts.routed * mlp * experts.width * model.bytes_of(one),
        Part.SHARED: moe * mlp * experts.shared_width * model.bytes_of(shared),
        Part.EMBEDDING: (1 if shape.tied_embeddings else 2)
        * shape.vocab_size
        * hidden
        * model.width,
        Part.VISION: _vision(model) * model.width,
        Part.MTP: model.mtp_layers
        * (expert_layer + split + whole + 2 * hidden * hidden * model.width),
    }
    return {part: math.ceil(amount) for part, amount in amounts.items() if amount}


def _attention(model: Model) -> tuple[float, float]:
    """Return the bytes of one layer's attention: split over heads, and whole on every rank."""
    shape, name = model.shape, "model.layers.1.self_attn."
    hidden, heads, attention = shape.hidden_size, shape.heads, shape.attention
    if isinstance(attention, LatentShape):
        low, latent = attention.q_lora_rank, attention.kv_lora_rank
        query = heads * (attention.nope + attention.rope) * (low or hidden)
        split = query + heads * (attention.nope + attention.v) * latent
        split += heads * attention.v * hidden
        whole = hidden * ((low or 0) + latent + attention.rope)
        return split * model.bytes_of(name + "o_proj"), whole * model.bytes_of(name + "q_a_proj")
    columns = (2 * heads + 2 * attention.kv_heads) * attention.head_dim
    return columns * hidden * model.bytes_of(name + "o_proj"), 0.0


def _vision(model: Model) -> int:
    tower = model.vision
    if tower is None:
        return 0
    layer = 4 * tower.hidden**2 + 2 * tower.hidden * tower.intermediate
    # Four patches side by side become one token of the text model.
    merged = 4 * tower.hidden
    return tower.layers * layer + merged * (merged + model.shape.hidden_size)
