"""How probable tokens were: the log probabilities that clients ask for."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

from panel.server.messages import TokenLogprob, Tokens
from panel.server.schedule import Scheduled

Floats = npt.NDArray[np.floating[Any]]


def score_prompts(logits: Floats, scheduled: Scheduled) -> list[Tokens]:
    """Return the log probabilities of the prompts' tokens that a step's logits tell of.

    `logits` has the rows that `Plan.prefill_begins` says. What a sequence had before it was put
    back is not said again.
    """
    plan = scheduled.plan
    prefilling = scheduled.sequences[len(plan.decoding) :]
    told = []
    for sequence, segment, begin in zip(
        prefilling, plan.prefilling, plan.prefill_begins, strict=True
    ):
        if not segment.scored:
            continue
        first = sequence.scored + 1
        tokens = sequence.request.tokens[first : segment.start + len(segment.tokens) + 1]
        if not tokens:
            continue
        row = begin + first - 1 - segment.start
        scores = score(logits[row : row + len(tokens)], tokens, sequence.request.logprobs or 0)
        sequence.scored += len(tokens)
        told.append(Tokens(sequence.rid, [], prompt_logprobs=scores))
    return told


def score(logits: Floats, tokens: Sequence[int], count: int) -> list[TokenLogprob]:
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
