"""The forward pass of one rank."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch.nn.functional import embedding

from panel.server.attention import Attention
from panel.server.batch import Batch
from panel.server.experts import FeedForward
from panel.server.norm import RMSNorm
from panel.server.reduction import Reduction


@dataclass(frozen=True, slots=True)
class Layer:
    """Attention, then a feed-forward part; each is added to the hidden state."""

    attention: Attention
    feed_forward: FeedForward


@dataclass(frozen=True, slots=True)
class Model:
    """This rank's shard of the model."""

    embedding: torch.Tensor
    """[vocabulary, hidden], whole on every rank."""
    rotation: torch.Tensor
    """Complex numbers, [positions, rope / 2]."""
    layers: Sequence[Layer]
    norm: RMSNorm
    head: torch.Tensor
    """[hidden, this rank's part of the vocabulary]"""
    taps: tuple[int, ...] = ()
    """Layers whose output a draft head wants to see."""

    def __call__(
        self,
        batch: Batch,
        cache: torch.Tensor,
        reduction: Reduction,
        *,
        poisoned: bool = False,
        aux: torch.Tensor | None = None,
    ) -> torch.Tensor:
        """Return logits [wanted rows, this rank's part of the vocabulary].

        `cache` has shape [layers, slots, entry] and is written to. `poisoned` makes the
        hidden state NaN, for drills.
        `aux` [rows, tapped layers * hidden] takes what the tapped layers put out.
        """
        hidden = embedding(batch.tokens, self.embedding)
        if poisoned:
            hidden.fill_(float("nan"))
        rotation = self.rotation[batch.positions].unsqueeze(1)
        rows = hidden.shape[0]
        for number, (layer, layer_cache) in enumerate(
            zip(self.layers, cache.unbind(0), strict=True)
        ):
            part = reduction.part(rows)
            layer.attention(hidden, rotation, batch, layer_cache, part)
            reduction.add_sum_(hidden)
            layer.feed_forward(hidden, reduction.part(rows), batch)
            reduction.add_sum_(hidden)
            self.tell(number, hidden, aux)
        if batch.logit_rows is not None:
            hidden = hidden[batch.logit_rows]
        return torch.mm(self.norm(hidden), self.head)

    def tell(self, number: int, hidden: torch.Tensor, aux: torch.Tensor | None) -> None:
        """Write what layer `number` has put out, [rows, hidden], where a draft head looks."""
        if aux is None or number not in self.taps:
            return
        for tap, place in zip(self.taps, aux.chunk(len(self.taps), dim=1), strict=True):
            if tap == number:
                place[: hidden.shape[0]].copy_(hidden)
