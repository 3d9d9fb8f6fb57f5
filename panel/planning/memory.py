"""What a rank's memory will go to, and whether that fits; sizes in bytes."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from typing import NamedTuple

from panel.domain.plan import Fit, Memory
from panel.planning.scene import Scene
from panel.planning.weights import Part, Weights
from panel.server.shape import LatentShape

CONTEXT = 3 << 29
"""CUDA context, NCCL and libraries: 1.5 GiB of a GPU before any weight."""
A_BATCH = 2 << 20
"""SGLang's own rule of thumb for a captured batch, per sequence."""


class Budget(NamedTuple):
    """The memory of one GPU, by what it is for."""

    lines: tuple[Memory, ...]
    fit: Fit
    short: int
    """Bytes missing for the first page of KV cache; 0 where there is room."""

    @classmethod
    def closed(
        cls,
        lines: Iterable[Memory],
        weights: Weights,
        total: int,
        after: int,
        tokens: int,
        short: int,
    ) -> Budget:
        """Return the budget of a GPU of `total` bytes; lines of nothing are left out.

        `after`: bytes left after the weights; `tokens`: what the KV cache holds.
        """
        kept = tuple(line for line in lines if line.predicted)
        fit = Fit(
            total=total,
            estimated=not weights.counted,
            kv_tokens=tokens,
            after_weights=after,
            left=total - sum(line.predicted for line in kept),
        )
        return cls(kept, fit, max(0, short))

    def of(self, category: str) -> int:
        """Return the bytes of one line, 0 where there is none."""
        return sum(line.predicted for line in self.lines if line.category == category)


def weight_lines(
    weights: Weights, ranks: Mapping[Part, int], notes: Mapping[Part, str]
) -> tuple[Memory, ...]:
    """Return this rank's weights by part; `ranks`: over how many each part is split.

    A part that `ranks` does not name is not loaded.
    """
    return tuple(
        Memory(category=part.value, predicted=-(-size // ranks[part]), note=notes.get(part, ""))
        for part, size in weights.parts.items()
        if part in ranks
    )


def kv_cell(scene: Scene, ranks: int) -> int:
    """Return the bytes of one token in a rank's KV cache; `ranks`: over which heads are split."""
    assert scene.model is not None
    shape = scene.model.shape
    width = 1 if scene.text("kv-cache-dtype").startswith("fp8") else 2
    if isinstance(shape.attention, LatentShape):
        entry = shape.attention.kv_lora_rank + shape.attention.rope
    else:
        heads = max(1, shape.attention.kv_heads // ranks)
        entry = 2 * heads * shape.attention.head_dim
    return entry * shape.layers * width


def draft_layer(scene: Scene, ranks: int) -> int:
    """Return a rank's part of an EAGLE head: one dense layer, and what joins its inputs."""
    assert scene.model is not None
    shape = scene.model.shape
    elements = 6 * shape.hidden_size**2 + 3 * shape.hidden_size * shape.intermediate_size
    return math.ceil(elements * 2 / ranks)
