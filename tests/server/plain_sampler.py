"""The sampler in its plainest form: what the engine's has to agree with."""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Sequence as Sequences
from typing import Any

import numpy as np
import numpy.typing as npt

from panel.server.messages import Generate
from panel.server.schedule import Choice
from panel.server.sequence import Sequence

Floats = npt.NDArray[np.floating[Any]]


def sample(logits: Floats, sequences: Sequences[Sequence], begins: Sequences[int]) -> list[Choice]:
    """Return a choice for each sequence.

    `logits` has shape [rows, vocabulary]; a sequence owns the rows from its begin on, one for its
    last token and one for each token of its draft. Sampling uses up one random number a token: the
    text is the same with drafts and without, and they cost nothing of its distribution. A draft
    is followed as far as it says what is sampled anyway.
    """
    choices = []
    for sequence, begin in zip(sequences, begins, strict=True):
        rows = logits[begin : begin + len(sequence.draft) + 1]
        best = rows.argmax(axis=1)
        # A NaN counts as the maximum.
        if not np.isfinite(rows[np.arange(len(rows)), best]).all():
            choices.append(Choice([], error="the model's logits are NaN or infinite"))
        elif _plain_greedy(sequence.request):
            choices.append(Choice(_follow(sequence.draft, best.tolist())))
        else:
            choices.append(_choose(rows, sequence))
    return choices


def _plain_greedy(request: Generate) -> bool:
    return request.temperature == 0 and not _penalised(request)


def _follow(draft: list[int], best: list[int]) -> list[int]:
    """Return the best tokens up to the first that differs from the draft."""
    for position, token in enumerate(draft):
        if best[position] != token:
            return best[: position + 1]
    return best


def _penalised(request: Generate) -> bool:
    return bool(
        request.frequency_penalty or request.presence_penalty or request.repetition_penalty != 1
    )


def _choose(rows: Floats, sequence: Sequence) -> Choice:
    request = sequence.request
    text = list(sequence.tokens) if _penalised(request) else None
    tokens: list[int] = []
    for row, guess in zip(rows, [*sequence.draft, None], strict=True):
        if text is not None:
            row = _penalise(row, request, text)
        token = _pick(row, request, sequence.random)
        tokens.append(token)
        if token != guess:
            break
        if text is not None:
            text.append(token)
    return Choice(tokens)


def _penalise(row: Floats, request: Generate, text: list[int]) -> Floats:
    """Return the logits after `text`, the prompt and the answer so far.

    Repetition counts in both, as in transformers; frequency and presence count in the answer.
    """
    row = row.copy()
    if request.repetition_penalty != 1:
        seen = list(set(text))
        old = row[seen]
        penalty = request.repetition_penalty
        row[seen] = np.where(old > 0, old / penalty, old * penalty)
    if request.frequency_penalty or request.presence_penalty:
        counts = Counter(text[len(request.tokens) :])
        times = np.fromiter(counts.values(), row.dtype)
        row[list(counts)] -= request.frequency_penalty * times + request.presence_penalty
    return row


def _pick(row: Floats, request: Generate, numbers: random.Random) -> int:
    if request.temperature == 0:
        return int(row.argmax())
    sums = _weights(row, request).cumsum(dtype=np.float64)
    # The last sum itself is out of reach, and tokens without a chance lie between equal sums.
    return int(sums.searchsorted(numbers.random() * sums[-1], side="right"))


def probabilities(row: Floats, request: Generate) -> npt.NDArray[np.float64]:
    """Return the distribution that a request samples from, shape [vocabulary].

    Temperature comes first, then top-k, top-p and min-p, each on what the one before has left.
    Tokens as probable as the last one kept are kept too.
    """
    chances = _weights(row, request).astype(np.float64)
    chances /= chances.sum()
    return chances


def _weights(row: Floats, request: Generate) -> Floats:
    """Return numbers in proportion to the probabilities, at most 1."""
    weights: Floats = row - row.max()
    weights /= max(request.temperature, 1e-5)
    np.exp(weights, out=weights)
    if 0 < request.top_k < len(weights):
        least = np.partition(weights, -request.top_k)[-request.top_k]
        weights[weights < least] = 0
    if request.top_p < 1:
        ordered = np.sort(weights)[::-1]
        sums = ordered.cumsum(dtype=np.float64)
        last = sums.searchsorted(request.top_p * sums[-1])
        weights[weights < ordered[min(last, len(ordered) - 1)]] = 0
    if request.min_p > 0:
        weights[weights < request.min_p] = 0
    return weights
