"""From logits to tokens: one sequence's result depends on that sequence alone."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence as Sequences
from typing import Any

import numpy as np
import numpy.typing as npt

from panel.server.draw import draw
from panel.server.messages import Generate
from panel.server.schedule import NOT_FINITE, Choice
from panel.server.score import score
from panel.server.sequence import Sequence

Floats = npt.NDArray[np.floating[Any]]


def sample(logits: Floats, sequences: Sequences[Sequence], begins: Sequences[int]) -> list[Choice]:
    """Return a choice for each sequence.

    `logits` has shape [rows, vocabulary]; a sequence owns the rows from its begin on, one for its
    last token and one for each token of its draft. Sampling uses up one random number a token: the
    text is the same with drafts and without, and they cost nothing of its distribution. A draft
    is followed as far as it says what is sampled anyway.
    """
    spans = [
        slice(begin, begin + len(sequence.draft) + 1)
        for sequence, begin in zip(sequences, begins, strict=True)
    ]
    best, sound = _best(logits[: max((span.stop for span in spans), default=0)])
    choices = []
    for sequence, span in zip(sequences, spans, strict=True):
        if not all(sound[span]):
            choices.append(Choice([], error=NOT_FINITE))
        elif _plain_greedy(sequence.request):
            choices.append(Choice(follow(sequence.draft, best[span])))
        else:
            choices.append(_choose(logits[span], best[span], sequence))
    return choices


def _best(logits: Floats) -> tuple[list[int], list[bool]]:
    """Return the most probable token of each row, and whether the row's logits are sound."""
    best = logits.argmax(axis=1)
    # A NaN counts as the maximum.
    sound = np.isfinite(logits[np.arange(len(logits)), best])
    return best.tolist(), sound.tolist()


def _plain_greedy(request: Generate) -> bool:
    return request.temperature == 0 and request.logprobs is None and not request.penalised


def follow(draft: list[int], sampled: list[int]) -> list[int]:
    """Return the sampled tokens up to the first that differs from the draft."""
    for position, token in enumerate(draft):
        if sampled[position] != token:
            return sampled[: position + 1]
    return sampled


def _choose(rows: Floats, best: list[int], sequence: Sequence) -> Choice:
    request = sequence.request
    text = list(sequence.tokens) if request.penalised else None
    tokens: list[int] = []
    for row, top, guess in zip(rows, best, [*sequence.draft, None], strict=True):
        if text is not None:
            row = _penalise(row, request, text)
            top = int(row.argmax())
        token = draw(row, top, request, sequence.number()) if request.temperature else top
        tokens.append(token)
        if token != guess:
            break
        if text is not None:
            text.append(token)
    if request.logprobs is None:
        return Choice(tokens)
    return Choice(tokens, score(rows[: len(tokens)], tokens, request.logprobs))


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
