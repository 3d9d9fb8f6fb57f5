"""Simulated acceptance: how fast speculation would be with drafts of a given quality.

For speed tests alone, on random weights for one: the text means nothing.
"""

from __future__ import annotations

from collections.abc import Callable
from collections.abc import Sequence as Sequences
from random import Random

from panel.server.options import Options
from panel.server.sampler import Floats, sample
from panel.server.schedule import Choice
from panel.server.sequence import Sequence
from panel.server.sizes import simulated_rate

Sampler = Callable[[Floats, Sequences[Sequence], Sequences[int]], list[Choice]]
"""(logits, sequences, begins) to choices, as `sample`."""


def sampling(options: Options) -> Sampler:
    """Return how tokens are chosen under the flags."""
    rate = simulated_rate(options)
    if rate is None:
        return sample
    numbers = Random(options.seed)

    def accepted(draft: list[int]) -> int:
        """Return how many tokens of a draft are taken: each with the same probability."""
        return next((n for n in range(len(draft)) if numbers.random() >= rate), len(draft))

    def choose(
        logits: Floats, sequences: Sequences[Sequence], begins: Sequences[int]
    ) -> list[Choice]:
        choices = sample(logits, sequences, begins)
        for number, (sequence, begin) in enumerate(zip(sequences, begins, strict=True)):
            if sequence.draft and choices[number].error is None:
                taken = accepted(sequence.draft)
                own = int(logits[begin + taken].argmax())
                choices[number] = Choice([*sequence.draft[:taken], own])
        return choices

    return choose
