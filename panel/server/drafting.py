"""How much is drafted: as far as it pays, by what became of the guesses before."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from collections.abc import Sequence as Sequences

from panel.server.sequence import Sequence
from panel.server.speculative import Guess, Pace

_HOPE_RATE = 0.2
_PRIOR = 0.5
_FORGET_RATE = 0.02
"""How fast a sequence without drafts is given another chance."""
_WINDOW = 64
"""Drafts whose mean counts as the present acceptance."""


class Drafter:
    """Drafts for the sequences of a decode step and counts what comes of it.

    A draft never changes a text: it decides only how many tokens of it one step can give. N-grams
    are guessed here. A draft head guesses in the step itself: until then its drafts are zeros.
    """

    def __init__(self, most: int, *, head: bool = False, adaptive: bool = True) -> None:
        """`most` is the longest draft; 0 without speculation."""
        self.drafts = 0
        self.drafted = 0
        self.accepted = 0
        self.accepted_per_position = [0] * most
        self.drafted_per_position = [0] * most
        self.length = 0
        """Tokens drafted for a sequence in the last step with a choice; 0: it does not pay."""
        self.pace = Pace()
        self._most = most
        self._head = head
        self._adaptive = adaptive
        self._rows = 0
        self._recent: deque[int] = deque(maxlen=_WINDOW)

    @property
    def tokens_a_cycle(self) -> float | None:
        """Mean tokens that the last steps with a draft gave a sequence; None before any."""
        return 1 + sum(self._recent) / len(self._recent) if self._recent else None

    @property
    def break_even(self) -> float | None:
        """Tokens that such a step has to give to be worth its time; None where not known yet."""
        if not self._most or not self.pace.compares(self._rows):
            return None
        return self.pace.cost(self._rows, 1 + (self.length or self._most))

    def draft(
        self, decoding: Sequences[Sequence], rows: int, grow: Callable[[Sequence, int], bool]
    ) -> int:
        """Set the drafts for a step of `rows` sequences after padding; return its width.

        `grow` gives a sequence room for so many tokens, if that takes no page from another.
        """
        for sequence in decoding:
            sequence.guess = self._guess(sequence)
        width = self._width(decoding, rows)
        for sequence in decoding:
            draft = sequence.guess[: width - 1]
            if draft and self._fits(sequence, len(draft), grow):
                sequence.draft = draft
            elif self._head:
                sequence.guess = []
                sequence.hope += _FORGET_RATE * (_PRIOR - sequence.hope)
        return 1 + max(len(sequence.draft) for sequence in decoding)

    def reveal(self, sequences: Sequences[Sequence], drafts: Sequences[list[int]]) -> None:
        """Take in what a draft head guessed in the step at hand."""
        for sequence, draft in zip(sequences, drafts, strict=False):
            sequence.draft = sequence.guess = draft[: len(sequence.draft)]

    def learn(self, sequence: Sequence, tokens: list[int]) -> None:
        """Take in what was sampled where `guess` was expected; the draft is done with."""
        for token, guess in zip(tokens, sequence.guess, strict=False):
            sequence.hope += _HOPE_RATE * ((token == guess) - sequence.hope)
        if sequence.draft:
            accepted = len(tokens) - 1
            self.drafts += 1
            self.drafted += len(sequence.draft)
            self.accepted += accepted
            self._recent.append(accepted)
            for position in range(len(sequence.draft)):
                self.drafted_per_position[position] += 1
                self.accepted_per_position[position] += position < accepted
        sequence.draft = []
        sequence.guess = []

    def _fits(self, sequence: Sequence, drafts: int, grow: Callable[[Sequence, int], bool]) -> bool:
        size = len(sequence.tokens) + drafts
        # A head drafts for the step after this one before it is planned: where all of this one's
        # drafts are followed, that one has as many tokens more.
        if self._head and grow(sequence, min(size + 1 + drafts, sequence.limit)):
            return True
        return grow(sequence, size)

    def _width(self, decoding: Sequences[Sequence], rows: int) -> int:
        longest = max(len(sequence.guess) for sequence in decoding)
        if not longest or (self._head and self.pace.is_curious(rows)):
            return 1
        width = 1 + longest
        if self._adaptive:
            guesses = [Guess(len(s.guess), s.hope) for s in decoding if s.guess]
            width = self.pace.best_width(rows, len(decoding) - len(guesses), guesses)
        self._rows, self.length = rows, width - 1
        return width

    def _guess(self, sequence: Sequence) -> list[int]:
        size = len(sequence.tokens)
        most = min(self._most, sequence.limit - size - 1)
        if self._head:
            return [0] * most
        if sequence.ngrams is None or most < 1:
            return []
        return sequence.ngrams.draft(sequence.tokens, most)
