"""The model's shape: what the engine needs to know of a `config.json`; sizes in elements."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal


class ModelError(Exception):
    """The model folder is missing, corrupt or not served by this engine; names file and way out."""


@dataclass(frozen=True, slots=True)
class LatentShape:
    """Multi-head latent attention: all heads share one cached latent."""

    q_lora_rank: int | None
    kv_lora_rank: int
    nope: int
    """Width of a head's part without position."""
    rope: int
    """Width of a head's rotated part."""
    v: int
    interleaved: bool
    """Whether the rotated pairs lie side by side in the checkpoint."""


@dataclass(frozen=True, slots=True)
class GroupedShape:
    """Grouped-query attention: several heads share one cached key and value."""

    kv_heads: int
    head_dim: int


@dataclass(frozen=True, slots=True)
class RoutingShape:
    """How a token's experts are chosen."""

    scoring: Literal["sigmoid", "softmax"]
    correction: bool
    """Whether the checkpoint has a bias for the choice (noaux_tc)."""
    groups: int
    groups_per_token: int
    group_best: int
    """How many of a group's best scores, summed, rank the group."""
    experts_per_token: int
    normalise: bool
    scale: float


@dataclass(frozen=True, slots=True)
class ExpertShape:
    """The mixture of experts of a layer."""

    routed: int
    width: int
    """Intermediate width of one routed expert."""
    shared_width: int
    """Intermediate width of all shared experts together; 0 without."""
    routing: RoutingShape


@dataclass(frozen=True, slots=True)
class Yarn:
    """Stretching of the rotary frequencies beyond the context of the training."""

    factor: float
    original_context: int
    beta_fast: float
    beta_slow: float
    truncate: bool
    attention_factor: float
    """Factor of rotated queries and of rotated keys."""


@dataclass(frozen=True, slots=True)
class RopeShape:
    """Rotary position embedding."""

    width: int
    theta: float
    yarn: Yarn | None
    softmax_factor: float
    """Factor of the softmax scale."""


@dataclass(frozen=True, slots=True)
class ModelConfig:
    """Shape of a model; sizes in elements."""

    model_class: str
    """As `architectures` names it; for a wrapper the wrapper's."""
    vocab_size: int
    hidden_size: int
    layers: int
    dense_layers: frozenset[int]
    """Layers that have a plain feed-forward part."""
    heads: int
    attention: LatentShape | GroupedShape
    attention_bias: bool
    intermediate_size: int
    experts: ExpertShape
    rms_norm_eps: float
    rope: RopeShape
    max_context: int
    tied_embeddings: bool
    fp8_block: tuple[int, int] | None
    """Rows and columns that share a scale in an FP8 checkpoint."""

    @property
    def expert_layers(self) -> tuple[int, ...]:
        """The layers that have a mixture of experts."""
        return tuple(n for n in range(self.layers) if n not in self.dense_layers)
