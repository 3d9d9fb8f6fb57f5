"""From logits to tokens: one sequence's result depends on that sequence alone."""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Sequence as Sequences
from typing import Any

import numpy as np
import numpy.typing as npt

from panel.server.messages import Generate, TokenLogprob
from panel.server.scheduler import Choice
from panel.server.sequence import Sequence

Floats = npt.NDArray[np.floating[Any]]


def sample(logits: Floats, sequences: Sequences[Sequence], width: int) -> list[Choice]:
    """Return a choice for each sequence.

    `logits` has shape [rows, vocabulary]; sequence i owns the rows from `i * width` on, one for its
    last token and one for each token of its draft. A draft token is accepted so that the result has
    the distribution of sampling without drafts; the first one refused is replaced, and where all
    are accepted one more token is sampled.
    """
    choices = []
    for number, sequence in enumerate(sequences):
        begin = number * width
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
    return (
        request.temperature == 0
        and request.logprobs is None
        and not request.frequency_penalty
        and not request.presence_penalty
    )


def _follow(draft: list[int], best: list[int]) -> list[int]:
    """Return the best tokens up to the first that differs from the draft."""
    for position, token in enumerate(draft):
        if best[position] != token:
            return best[: position + 1]
    return best


def _choose(rows: Floats, sequence: Sequence) -> Choice:
    request = sequence.request
    penalised = bool(request.frequency_penalty or request.presence_penalty)
    counts = Counter(sequence.answer) if penalised else Counter[int]()
    tokens: list[int] = []
    for row, guess in zip(rows, [*sequence.draft, None], strict=True):
        token = _pick(_penalise(row, request, counts), request, guess, sequence.random)
        tokens.append(token)
        if token != guess:
            break
        if penalised:
            counts[token] += 1
    if request.logprobs is None:
        return Choice(tokens)
    pairs = zip(rows, tokens, strict=False)
    return Choice(tokens, [_report(row, token, request.logprobs) for row, token in pairs])


def _penalise(row: Floats, request: Generate, counts: Counter[int]) -> Floats:
    if not counts:
        return row
    row = row.copy()
    times = np.fromiter(counts.values(), row.dtype)
    row[list(counts)] -= request.frequency_penalty * times + request.presence_penalty
    return row


def _pick(row: Floats, request: Generate, guess: int | None, numbers: random.Random) -> int:
    """Return one token; `guess` is returned with exactly its own probability."""
    if request.temperature == 0:
        return int(row.argmax())
    chances = probabilities(row, request)
    if guess is not None:
        if numbers.random() < chances[guess]:
            return guess
        chances[guess] = 0
    sums = chances.cumsum()
    # The last sum itself is out of reach, and tokens without a chance lie between equal sums.
    return int(sums.searchsorted(numbers.random() * sums[-1], side="right"))


def probabilities(row: Floats, request: Generate) -> npt.NDArray[np.float64]:
    """Return the distribution that a request samples from, shape [vocabulary].

    Temperature comes first, then top-k, top-p and min-p, each on what the one before has left.
    Tokens as probable as the last one kept are kept too.
    """
    scaled = row / max(request.temperature, 1e-5)
    chances: npt.NDArray[np.float64] = np.exp(scaled - scaled.max()).astype(np.float64)
    if 0 < request.top_k < len(chances):
        least = np.partition(chances, -request.top_k)[-request.top_k]
        chances[chances < least] = 0
    if request.top_p < 1:
        ordered = np.sort(chances)[::-1]
        sums = ordered.cumsum()
        last = sums.searchsorted(request.top_p * sums[-1])
        chances[chances < ordered[min(last, len(ordered) - 1)]] = 0
    if request.min_p > 0:
        chances[chances < request.min_p * chances.max()] = 0
    chances /= chances.sum()
    return chances


def _report(row: Floats, token: int, count: int) -> TokenLogprob:
    wide = row.astype(np.float64)
    logprobs = wide - wide.max()
    logprobs -= np.log(np.exp(logprobs).sum())
    count = min(count, len(row))
    top = np.argpartition(logprobs, -count)[-count:] if count else np.empty(0, np.int64)
    top = top[np.argsort(-logprobs[top])]
    pairs = list(zip(top.tolist(), logprobs[top].tolist(), strict=True))
    return TokenLogprob(token, float(logprobs[token]), pairs)
