"""Simulated acceptance: how fast speculation would be with drafts of a given quality.

For speed tests alone, on random weights for one: the text means nothing. Whether a draft is taken
follows from where it stands, so that a device finds it as the host does.
"""

from __future__ import annotations

from collections.abc import Callable
from collections.abc import Sequence as Sequences
from functools import partial

from panel.server.flight import Follow
from panel.server.options import Options
from panel.server.sampler import Floats, follow, sample
from panel.server.schedule import Choice
from panel.server.sequence import Sequence
from panel.server.sizes import simulated_rate

Sampler = Callable[[Floats, Sequences[Sequence], Sequences[int]], list[Choice]]
"""(logits, sequences, begins) to choices, as `sample`."""
Acceptance = Callable[[Sequence], int]
"""How many tokens of a sequence's draft are taken."""

_SEATS, _MIX = 0x1E3779B1, 0x045D9F3B


def is_taken(seat: int, position: int, rate: float) -> bool:
    """Return whether the draft at a position of the sequence in a seat is taken."""
    word = (seat * _SEATS + position) & 0xFFFFFFFF
    for _ in range(2):
        word = ((word ^ word >> 16) * _MIX) & 0xFFFFFFFF
    return (word ^ word >> 16) >> 8 < round(rate * 2**24)


def acceptance(options: Options) -> Acceptance | None:
    """Return the acceptance that the flags ask to simulate, None for a real one."""
    rate = simulated_rate(options)
    return None if rate is None else partial(_accepted, rate)


def _accepted(rate: float, sequence: Sequence) -> int:
    """Take each token with the same probability."""
    drafted, begin = len(sequence.draft), len(sequence.tokens)
    every = range(drafted)
    return next((n for n in every if not is_taken(sequence.seat, begin + n, rate)), drafted)


def following(accepted: Acceptance | None) -> Follow:
    """Return how far drafts are followed where the device has sampled."""

    def real(sequence: Sequence, sampled: list[int]) -> list[int]:
        return follow(sequence.draft, sampled)

    if accepted is None:
        return real

    def taken(sequence: Sequence, sampled: list[int]) -> list[int]:
        count = accepted(sequence)
        return [*sequence.draft[:count], sampled[count]]

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
                taken = accepted(sequence)
                own = int(logits[begin + taken].argmax())
                choices[number] = Choice([*sequence.draft[:taken], own])
        return choices

    return choose
