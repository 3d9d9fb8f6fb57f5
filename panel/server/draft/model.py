"""The draft head: one layer over a token and the feature of the token before it.

The entry of a position holds the token there and what the model knew one position earlier: a
function of the tokens up to it, so that pages shared between prompts hold it too. What the layer
puts out predicts the next token and stands in for the feature of its own position.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch.nn.functional import embedding

from panel.server.batch import Batch
from panel.server.draft.attention import DraftAttention
from panel.server.experts import Dense
from panel.server.norm import RMSNorm
from panel.server.reduction import Reduction


@dataclass(frozen=True, slots=True)
class DraftModel:
    """This rank's shard of the head."""

    fuse: torch.Tensor
    """[this rank's part of three hidden states, hidden]"""
    fused: slice
    """Which part."""
    embedding: torch.Tensor
    """[vocabulary, hidden]; the model's own unless the head brings one."""
    embedding_norm: RMSNorm
    feature_norm: RMSNorm
    norm_before_residual: bool
    attention: DraftAttention
    feed_forward: Dense
    norm: RMSNorm
    head: torch.Tensor
    """[hidden, this rank's part of the reduced vocabulary]"""
    ids: torch.Tensor
    """The tokens of those columns, int64."""
    rotation: torch.Tensor
    """Complex numbers, [positions, width / 2]."""

    def features(self, aux: torch.Tensor, reduction: Reduction) -> torch.Tensor:
        """Return the features [rows, hidden] of three hidden states [rows, 3 * hidden]."""
        rows, hidden = aux.shape[0], self.fuse.shape[1]
        torch.mm(aux[:, self.fused], self.fuse, out=reduction.part(rows))
        total = aux.new_zeros(rows, hidden)
        reduction.add_sum_(total)
        return total

    def __call__(
        self, features: torch.Tensor, batch: Batch, cache: torch.Tensor, reduction: Reduction
    ) -> torch.Tensor:
        """Return what the layer puts out for the batch's tokens, [rows, hidden].

        `features` [rows, hidden] are of the positions before; `cache` [slots, entry] is written to.
        """
        rows = features.shape[0]
        normed = self.feature_norm(features)
        token = self.embedding_norm(embedding(batch.tokens, self.embedding))
        hidden = normed.clone() if self.norm_before_residual else features.clone()
        rotation = self.rotation[batch.positions].unsqueeze(1)
        both = torch.cat((token, normed), dim=1)
        self.attention(both, rotation, batch, cache, reduction.part(rows))
        reduction.add_sum_(hidden)
        self.feed_forward(hidden, reduction.part(rows), batch)
        reduction.add_sum_(hidden)
        return hidden

    def remember(
        self,
        tokens: torch.Tensor,
        positions: torch.Tensor,
        slots: torch.Tensor,
        features: torch.Tensor,
        cache: torch.Tensor,
    ) -> None:
        """Write the cache entries of tokens with the features before them; nothing is guessed.

        Shapes: tokens, positions, slots int64 [rows], features [rows, hidden].
        """
        token = self.embedding_norm(embedding(tokens, self.embedding))
        both = torch.cat((token, self.feature_norm(features)), dim=1)
        self.attention.remember(both, self.rotation[positions].unsqueeze(1), slots, cache)

    def logits(self, hidden: torch.Tensor) -> torch.Tensor:
        """Return the logits of this rank's part of the reduced vocabulary."""
        return torch.mm(self.norm(hidden), self.head)
