"""Build one rank's shard of the model from a source of weights."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import fields, is_dataclass

import torch

from panel.server.dispatch import ExpertsDispatched
from panel.server.exchange import Exchange
from panel.server.experts import ExpertsApart, ExpertsTogether
from panel.server.load_attention import load_attention
from panel.server.load_experts import load_feed_forward
from panel.server.loading import Loading
from panel.server.model import Layer, Model
from panel.server.placement import Placement
from panel.server.rope import rotation_table

_READERS = 8
"""Layers loaded at a time onto a GPU."""


def load_model(
    loading: Loading,
    placements: Mapping[int, Placement],
    exchange: Exchange | None,
    max_context: int,
    progress: Callable[[int, int], None],
) -> Model:
    """Return the shard's model; `progress` is called with (parts done, parts in all).

    `placements` has the layers with a mixture of experts; see `load_feed_forward` for `exchange`.
    """
    config = loading.config
    total = config.layers + 1
    vocabulary = (config.vocab_size, config.hidden_size)
    embedding = loading.place(loading.get("model.embed_tokens.weight", vocabulary))
    part = loading.shard.part(config.vocab_size)
    if config.tied_embeddings:
        head = embedding[part].t()
    else:
        head = loading.place(loading.get("lm_head.weight", vocabulary, (part,)).t())
    norm = loading.norm("model.norm.weight", config.hidden_size)
    progress(1, total)

    def load(number: int) -> Layer:
        with torch.inference_mode():
            attention = load_attention(loading, number)
            return Layer(
                attention, load_feed_forward(loading, number, placements.get(number), exchange)
            )

    layers = []
    with ThreadPoolExecutor(_READERS) as pool:
        # Ranks on CPUs share the cores anyway; a GPU takes weights faster than one thread reads.
        each = map if loading.device.type == "cpu" else pool.map
        for layer in each(load, range(config.layers)):
            layers.append(layer)
            progress(len(layers) + 1, total)
    rotation = loading.settle(rotation_table(config.rope, max_context), torch.complex64)
    return Model(embedding, rotation, layers, norm, head)


def shared_expert_bytes(model: Model) -> int:
    """Return the bytes of the shared experts' weights of all layers."""
    total = 0
    for layer in model.layers:
        match layer.feed_forward:
            case ExpertsTogether() as together:
                total += together.shared_bytes
            case ExpertsApart(shared=shared) | ExpertsDispatched(shared=shared):
                total += shared.gate_up.nbytes + shared.down.nbytes
    return total


def count_bytes(part: object) -> int:
    """Return the bytes of all weights inside a model or a part of it; a shared tensor once."""
    storages: dict[int, int] = {}

    def visit(value: object) -> None:
        if isinstance(value, torch.Tensor):
            storage = value.untyped_storage()
            storages[storage.data_ptr()] = storage.nbytes()
        elif is_dataclass(value) and not isinstance(value, Placement):
            for field in fields(value):
                visit(getattr(value, field.name))
        elif isinstance(value, list):
            for item in value:
                visit(item)

    visit(part)
    return sum(storages.values())
