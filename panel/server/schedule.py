"""What the scheduler goes by and what it says: limits, steps, choices, counts."""

from __future__ import annotations

from collections.abc import Sequence as Sequences
from dataclasses import dataclass

from panel.server.messages import TokenLogprob
from panel.server.plan import Plan, Work
from panel.server.sequence import Sequence


@dataclass(frozen=True, slots=True)
class Limits:
    """The bounds of a schedule."""

    vocab_size: int
    max_context: int
    max_running: int
    chunk: int
    """Tokens in one step at most, unless more sequences than that decode."""
    buckets: tuple[int, ...]
    draft_tokens: int
    """Most guessed tokens of a sequence; 0 without speculation."""
    head: bool = False
    """Whether a draft head guesses, in the very step that verifies."""
    adaptive: bool = True
    """Whether as much is guessed as pays; else always as much as may be."""

    @property
    def logit_rows(self) -> int:
        """Rows of logits in one step at most."""
        return self.max_running * (1 + self.draft_tokens)


NOT_FINITE = "the model's logits are NaN or infinite"


@dataclass(frozen=True, slots=True)
class Choice:
    """What was sampled for one sequence in one step."""

    tokens: list[int]
    logprobs: list[TokenLogprob] | None = None
    error: str | None = None


@dataclass(slots=True)
class Counters:
    """Sums since start."""

    prompt_tokens: int = 0
    cached_tokens: int = 0
    generated_tokens: int = 0
    preemptions: int = 0


@dataclass(frozen=True, slots=True)
class Scheduled:
    """A step: the plan, and the sequences of its segments in the same order."""

    plan: Plan
    sequences: tuple[Sequence, ...] = ()

    @property
    def sampled(self) -> Sequences[Sequence]:
        """The sequences for which logits come back, in the order of `plan.logit_begins`."""
        if self.plan.work is Work.DECODE:
            return self.sequences
        pairs = zip(self.sequences, self.plan.segments, strict=True)
        return [sequence for sequence, segment in pairs if segment.logits]
