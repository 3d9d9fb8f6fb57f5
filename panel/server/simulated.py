"""Simulated acceptance: how fast speculation would be with drafts of a given quality.

For speed tests alone, on random weights for one: the text means nothing.
"""

from __future__ import annotations

from collections.abc import Callable
from collections.abc import Sequence as Sequences
from random import Random

from panel.server.flight import Follow
from panel.server.options import Options
from panel.server.sampler import Floats, follow, sample
from panel.server.schedule import Choice
from panel.server.sequence import Sequence
from panel.server.sizes import simulated_rate

Sampler = Callable[[Floats, Sequences[Sequence], Sequences[int]], list[Choice]]
"""(logits, sequences, begins) to choices, as `sample`."""
Acceptance = Callable[[list[int]], int]
"""How many tokens of a draft are taken."""


def acceptance(options: Options) -> Acceptance | None:
    """Return the acceptance that the flags ask to simulate, None for a real one."""
    rate = simulated_rate(options)
    if rate is None:
        return None
    numbers = Random(options.seed)

    def accepted(draft: list[int]) -> int:
        """Take each token with the same probability."""
        return next((n for n in range(len(draft)) if numbers.random() >= rate), len(draft))

    return accepted


def following(accepted: Acceptance | None) -> Follow:
    """Return how far drafts are followed where the device has sampled."""
    if accepted is None:
        return follow

    def taken(draft: list[int], sampled: list[int]) -> list[int]:
        count = accepted(draft)
        return [*draft[:count], sampled[count]]

    return taken


def sampling(accepted: Acceptance | None) -> Sampler:
    """Return how tokens are chosen from logits on the host."""
    if accepted is None:
        return sample

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
