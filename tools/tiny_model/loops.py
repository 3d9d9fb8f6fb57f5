"""Teach the model not to fall into loops.

A small model that picks the likeliest token soon repeats itself: having seen a sentence twice, it
is surer of it the third time. A few rows of each batch are therefore a sentence (or a phrase)
repeated over and over, and their loss asks that each repetition be half as likely as the one
before (the DITTO loss of Xu et al., 2022, "Learning to break the loop").
"""

from __future__ import annotations

import numpy as np
import torch
from torch import Tensor

PENALTY = 0.5


class Loops:
    """Draws rows of repeated spans; a span ends where a sentence or paragraph does."""

    def __init__(self, tokens: np.ndarray, ends: list[int], seed: int = 0) -> None:
        self.rng = np.random.default_rng(seed)
        self.tokens = tokens
        stops = np.flatnonzero(np.isin(tokens, ends)) + 1
        lengths = np.diff(stops)
        good = (lengths >= 5) & (lengths <= 60)
        self.starts, self.lengths = stops[:-1][good], lengths[good]

    def draw(self, rows: int, length: int) -> tuple[np.ndarray, np.ndarray]:
        """Ids (rows, length + 1); for each row its period and where the second round begins.

        What stood before the span in its text leads up to it; a third are short phrases.
        """
        pick = self.rng.integers(len(self.starts), size=rows)
        starts, periods = self.starts[pick], self.lengths[pick].copy()
        short = self.rng.random(rows) < 0.33
        periods[short] = self.rng.integers(2, 12, size=short.sum()).clip(max=periods[short])
        leads = self.rng.integers(0, length // 4, size=rows).clip(max=starts)
        at = np.arange(length + 1) - leads[:, None]
        at = starts[:, None] + np.where(at < 0, at, at % periods[:, None])
        return self.tokens[at].astype(np.int64), np.stack([periods, leads + periods])


def loop_loss(logits: Tensor, targets: Tensor, loops: Tensor) -> Tensor:
    """`-log(1 - |p - PENALTY * p_before|)`, `p_before` being a period earlier and held fixed."""
    periods, second = loops
    chance = logits.log_softmax(-1).gather(-1, targets[..., None])[..., 0].exp()
    position = torch.arange(targets.shape[1], device=targets.device)[None]
    earlier = (position - periods[:, None]).clamp(min=0)
    before = chance.detach().gather(1, earlier) * PENALTY
    loss = -torch.log1p(-(chance - before).abs().clamp(max=1 - 1e-4))
    counted = position + 1 >= second[:, None]
    return (loss * counted).sum() / counted.sum()
