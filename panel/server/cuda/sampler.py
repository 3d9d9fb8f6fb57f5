"""Sampling on the device: tokens go into the next step without a look at them here."""

from __future__ import annotations

from collections.abc import Sequence as Sequences
from dataclasses import dataclass

import numpy as np
import torch

from panel.kernels.sampling import Draws, sample_tokens
from panel.kernels.sampling_filter import Filters
from panel.server.cuda.layout import Arrays
from panel.server.cuda.upload import upload
from panel.server.messages import Generate
from panel.server.plan import Plan
from panel.server.schedule import NOT_FINITE, Choice
from panel.server.sequence import Sequence


@dataclass(frozen=True, slots=True)
class Landing:
    """The tokens of a step, on their way to the host."""

    tokens: torch.Tensor
    """int64 [sequences], pinned; known once `done`."""
    finite: torch.Tensor
    """bool [sequences], pinned."""
    done: torch.cuda.Event

    def land(self) -> list[Choice]:
        self.done.synchronize()
        pairs = zip(self.tokens.tolist(), self.finite.tolist(), strict=True)
        return [
            Choice([token]) if finite else Choice([], error=NOT_FINITE) for token, finite in pairs
        ]


@dataclass(frozen=True, slots=True)
class KernelSampler:
    """Samples what needs no more than the logits of one token, one row a sequence."""

    sampled: torch.Tensor
    """Where the next step looks for its tokens, int64 [most rows]."""
    finite: torch.Tensor
    """bool [most rows]"""

    @classmethod
    def into(cls, sampled: torch.Tensor) -> KernelSampler:
        """Return a sampler that leaves its tokens there."""
        return cls(sampled, torch.ones(sampled.shape[0], dtype=torch.bool, device=sampled.device))

    def serves(self, plan: Plan, sequences: Sequences[Sequence]) -> bool:
        return plan.width == 1 and not any(_asks_more(each.request) for each in sequences)

    def sample(self, logits: torch.Tensor, sequences: Sequences[Sequence]) -> Landing:
        count = len(sequences)
        tokens, finite = self.sampled[:count], self.finite[:count]
        if count:
            views = upload(_arrays(sequences), logits.device).views
            filters = Filters(views.get("top_k"), views.get("top_p"), views.get("min_p"))
            draws = Draws(
                views["temperature"],
                views["uniform"],
                None if filters == Filters() else filters,
            )
            sample_tokens(logits, draws, tokens=tokens, finite=finite)
        pinned = logits.is_cuda
        landing = Landing(
            torch.empty(count, dtype=torch.int64, pin_memory=pinned),
            torch.empty(count, dtype=torch.bool, pin_memory=pinned),
            torch.cuda.Event(),
        )
        landing.tokens.copy_(tokens, non_blocking=True)
        landing.finite.copy_(finite, non_blocking=True)
        landing.done.record()
        return landing


def _asks_more(request: Generate) -> bool:
    """True where the host has to see the logits."""
    return request.logprobs is not None or bool(
        request.frequency_penalty or request.presence_penalty or request.repetition_penalty != 1
    )


def _arrays(sequences: Sequences[Sequence]) -> Arrays:
    """Return what each row is drawn with; filters that no row asks for are left out.

    A random number is used up for each token that is not greedy, as on the host.
    """
    requests = [sequence.request for sequence in sequences]
    arrays = {
        "uniform": np.array(
            [s.random.random() if s.request.temperature else 0.0 for s in sequences]
        ),
        "temperature": np.array([each.temperature for each in requests], np.float32),
    }
    if any(each.top_k > 0 for each in requests):
        arrays["top_k"] = np.array([max(each.top_k, 0) for each in requests], np.int32)
    if any(each.top_p < 1 for each in requests):
        arrays["top_p"] = np.array([each.top_p for each in requests], np.float32)
    if any(each.min_p > 0 for each in requests):
        arrays["min_p"] = np.array([each.min_p for each in requests], np.float32)
    return arrays
