"""Sampling after which a draft head goes on at once, before the host has looked at the tokens."""

from __future__ import annotations

from collections.abc import Sequence as Sequences
from dataclasses import dataclass

import torch

from panel.server.cuda.head import KernelHead
from panel.server.cuda.sampler import KernelSampler
from panel.server.flight import Flight
from panel.server.plan import Plan
from panel.server.sequence import Sequence


@dataclass(frozen=True, slots=True)
class AheadSampler:
    """Samples, then lets the head draft from what was sampled.

    The tokens are on their way to the host meanwhile. Where its next plan is another one than the
    head went on with, those drafts are dropped.
    """

    plain: KernelSampler
    head: KernelHead

    def serves(self, sequences: Sequences[Sequence]) -> bool:
        return self.plain.serves(sequences)

    def sample(self, logits: torch.Tensor, sequences: Sequences[Sequence], width: int) -> Flight:
        flight = self.plain.sample(logits, sequences, width)
        self.head.go_on(self.plain.sampled, flight)
        return flight

    def whole(self, logits: torch.Tensor, plan: Plan) -> torch.Tensor:
        return self.plain.whole(logits, plan)

    def follow(self, count: int) -> None:
        self.plain.follow(count)
