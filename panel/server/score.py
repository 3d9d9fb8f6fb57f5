"""How probable tokens were: the log probabilities that clients ask for."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

from panel.server.messages import TokenLogprob


def score(
    logits: npt.NDArray[np.floating[Any]], tokens: Sequence[int], count: int
) -> list[TokenLogprob]:
    """Return the log probability of each row's token and of its `count` most probable ones.

    `logits` has shape [rows, vocabulary].
    """
    logprobs = logits.astype(np.float64)
    logprobs -= logprobs.max(axis=1, keepdims=True)
    logprobs -= np.log(np.exp(logprobs).sum(axis=1, keepdims=True))
    count = min(count, logprobs.shape[1])
    return [
        TokenLogprob(token, float(row[token]), _most_probable(row, count))
        for row, token in zip(logprobs, tokens, strict=True)
    ]


def _most_probable(row: npt.NDArray[np.float64], count: int) -> list[tuple[int, float]]:
    if not count:
        return []
    top = np.argpartition(row, -count)[-count:]
    top = top[np.argsort(-row[top])]
    return list(zip(top.tolist(), row[top].tolist(), strict=True))
