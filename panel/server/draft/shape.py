"""The draft head's shape, from the config of a public EAGLE-3 checkpoint; imports no torch."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from panel.server.families import rope_shape
from panel.server.options import OptionError, Options
from panel.server.shape import GroupedShape, ModelConfig, ModelError, RopeShape

AUX = 3
"""Hidden states of the model that make up a feature."""
CLASSES = ("LlamaForCausalLMEagle3", "Eagle3LlamaForCausalLM")
_DUMMY_VOCABULARY = 32000


@dataclass(frozen=True, slots=True)
class DraftShape:
    """One Llama layer over a token and a feature; sizes in elements."""

    folder: Path | None
    """None for a head of random weights."""
    vocab_size: int
    """Of the reduced vocabulary."""
    hidden_size: int
    """The model's too."""
    heads: int
    attention: GroupedShape
    intermediate_size: int
    rms_norm_eps: float
    rope: RopeShape
    aux_layers: tuple[int, ...]
    """The model's layers whose outputs make up a feature."""
    norm_before_residual: bool
    """Whether the feature goes on past the attention in its normalised form."""
    own_embedding: bool
    """Whether the head has an embedding of its own; else it uses the model's."""


def parse_draft(raw: Mapping[str, Any], config: ModelConfig, folder: Path) -> DraftShape:
    """Return the shape of a head for a model; what does not fit it or is unknown is refused."""
    for wrong, text in (
        (
            not set(raw.get("architectures") or ()) & set(CLASSES),
            f"architectures {raw.get('architectures')} is no EAGLE-3 head; served: "
            + ", ".join(CLASSES),
        ),
        (int(raw.get("num_hidden_layers", 1)) != 1, "a head has one layer"),
        (raw.get("hidden_act", "silu") != "silu", "hidden_act is served as silu alone"),
        (bool(raw.get("attention_bias")) or bool(raw.get("mlp_bias")), "biases are not served"),
    ):
        if wrong:
            raise ModelError(text)
    made_for = "the head was made for another model: "
    hidden = int(raw.get("target_hidden_size") or raw["hidden_size"])
    if {hidden, int(raw["hidden_size"])} != {config.hidden_size}:
        raise ModelError(
            f"{made_for}hidden size {hidden}, its own {raw['hidden_size']}; "
            f"{config.model_class} has {config.hidden_size}"
        )
    if int(raw["vocab_size"]) != config.vocab_size:
        raise ModelError(
            f"{made_for}vocabulary {raw['vocab_size']}; "
            f"{config.model_class} has {config.vocab_size}"
        )
    reduced = int(raw.get("draft_vocab_size") or config.vocab_size)
    if not 0 < reduced <= config.vocab_size:
        raise ModelError(f"draft_vocab_size {reduced} is not within 1 and {config.vocab_size}")
    heads = int(raw["num_attention_heads"])
    width = int(raw.get("head_dim") or hidden // heads)
    return DraftShape(
        folder=folder,
        vocab_size=reduced,
        hidden_size=hidden,
        heads=heads,
        attention=GroupedShape(int(raw.get("num_key_value_heads") or heads), width),
        intermediate_size=int(raw["intermediate_size"]),
        rms_norm_eps=float(raw.get("rms_norm_eps", 1e-6)),
        rope=rope_shape(raw, width),
        aux_layers=_aux_layers(raw, config, made_for),
        norm_before_residual=bool(raw.get("norm_before_residual", False)),
        own_embedding=False,
    )


def dummy_shape(config: ModelConfig) -> DraftShape:
    """Return a head of random weights as large as public ones for such a model."""
    heads = config.heads
    width = max(2, config.hidden_size // heads // 2 * 2)
    return DraftShape(
        folder=None,
        vocab_size=min(_DUMMY_VOCABULARY, config.vocab_size),
        hidden_size=config.hidden_size,
        heads=heads,
        attention=GroupedShape(heads, width),
        intermediate_size=config.intermediate_size,
        rms_norm_eps=config.rms_norm_eps,
        rope=RopeShape(width, 10000.0, None, 1.0),
        aux_layers=_usual(config.layers),
        norm_before_residual=False,
        own_embedding=False,
    )


def check_split(shape: DraftShape, options: Options) -> None:
    """Refuse, by `OptionError`, what cannot be split over the ranks as the flags say."""
    whole = options.dp_attention or options.speculative_draft_ranks == "one"
    ranks = 1 if whole else options.tp_size
    kv_heads = shape.attention.kv_heads
    for size, what in (
        (shape.heads, "attention heads"),
        (shape.intermediate_size, "columns of its feed-forward part"),
    ):
        if size % ranks:
            raise OptionError(
                f"tp-size {ranks} does not divide the draft head's {size} {what}; "
                "speculative-draft-ranks one does not split it"
            )
    if kv_heads % ranks and ranks % kv_heads:
        raise OptionError(
            f"tp-size {ranks} and the draft head's {kv_heads} key-value heads: "
            "one has to divide the other"
        )


def _aux_layers(raw: Mapping[str, Any], config: ModelConfig, made_for: str) -> tuple[int, ...]:
    """Return the layers that the config names, else the usual ones.

    In `eagle_config` a number means the output of that layer, as SGLang reads it.
    """
    named = (raw.get("eagle_config") or {}).get("eagle_aux_hidden_state_layer_ids")
    layers = tuple(int(n) for n in named) if named else _usual(config.layers)
    if len(layers) != AUX:
        raise ModelError(f"eagle_aux_hidden_state_layer_ids {list(layers)}: {AUX} are needed")
    if not all(0 <= layer < config.layers for layer in layers):
        raise ModelError(
            f"{made_for}it looks at layers {list(layers)}; "
            f"{config.model_class} has layers 0 to {config.layers - 1}"
        )
    return layers


def _usual(layers: int) -> tuple[int, ...]:
    """Return the layers before the 2nd, the middle and the third but last (from 0)."""
    return tuple(max(0, layer - 1) for layer in (2, layers // 2, layers - 3))
