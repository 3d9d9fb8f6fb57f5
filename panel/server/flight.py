"""Steps whose tokens the device samples: they are known here once the step has landed."""

from __future__ import annotations

from collections.abc import Callable
from collections.abc import Sequence as Sequences
from dataclasses import dataclass
from typing import Protocol

import torch

from panel.server.plan import Plan
from panel.server.schedule import NOT_FINITE, Choice
from panel.server.sequence import Sequence

Follow = Callable[[Sequence, list[int]], list[int]]
"""(sequence, sampled) to the tokens that are taken, by its draft, as `simulated.following`."""


@dataclass(frozen=True, slots=True)
class Landed:
    """What came of a step."""

    tokens: list[int]
    """Sampled from each row of logits."""
    sound: list[bool]
    """Whether those of a row were finite."""
    drafts: list[list[int]]
    """What a draft head has guessed in the step, for each sequence that decodes."""


class Flight(Protocol):
    """A step under way on the device."""

    def done(self) -> bool:
        """True once `land` has nothing to wait for."""
        ...

    def land(self) -> Landed:
        """Wait for the step."""
        ...


class DeviceSampler(Protocol):
    """Samples where the logits are."""

    def serves(self, sequences: Sequences[Sequence]) -> bool:
        """True where the device can do all that the requests ask for."""
        ...

    def sample(self, logits: torch.Tensor, sequences: Sequences[Sequence], width: int) -> Flight:
        """Begin to sample a token from each row of logits, `width` a sequence.

        A single row uses up its random number; of more rows each gets the number that it would
        have if all before it were followed, and `chosen` uses up those of the tokens taken.
        """
        ...

    def whole(self, logits: torch.Tensor, plan: Plan) -> torch.Tensor:
        """Return all logits of a plan on rank 0, something else on the others.

        `logits` are what this rank has of them; all ranks call this together.
        """
        ...

    def follow(self, count: int) -> None:
        """Learn, on another rank than 0, so many tokens that rank 0 samples for the next step."""
        ...


def chosen(
    landed: Landed, plan: Plan, sequences: Sequences[Sequence], follow: Follow
) -> list[Choice]:
    """Return a choice for each sequence of a plan, whose drafts are known by now."""
    choices = []
    for sequence, begin in zip(sequences, plan.logit_begins, strict=True):
        rows = slice(begin, begin + len(sequence.draft) + 1)
        if not all(landed.sound[rows]):
            choices.append(Choice([], error=NOT_FINITE))
            continue
        tokens = follow(sequence, landed.tokens[rows])
        if plan.width > 1 and sequence.request.temperature:
            sequence.use(len(tokens))
        choices.append(Choice(tokens))
    return choices
