"""How much is drafted: as far as it pays, by what became of the guesses before."""

from __future__ import annotations

from collections.abc import Callable
from collections.abc import Sequence as Sequences

from panel.server.sequence import Sequence
from panel.server.speculative import Guess, Pace

_HOPE_RATE = 0.2


class Drafter:
    """Drafts for the sequences of a decode step and counts what comes of it.

    A draft never changes a text: it decides only how many tokens of it one step can give.
    """

    def __init__(self, most: int) -> None:
        """`most` is the longest draft; 0 without speculation."""
        self.drafts = 0
        self.drafted = 0
        self.accepted = 0
        self.accepted_per_position = [0] * most
        self.pace = Pace()
        self._most = most

    def draft(
        self, decoding: Sequences[Sequence], rows: int, grow: Callable[[Sequence, int], bool]
    ) -> int:
        """Set the drafts for a step of `rows` sequences after padding; return its width.

        `grow` gives a sequence room for so many tokens, if that takes no page from another.
        """
        for sequence in decoding:
            sequence.guess = self._guess(sequence)
        guesses = [Guess(len(s.guess), s.hope) for s in decoding if s.guess]
        width = self.pace.best_width(rows, len(decoding) - len(guesses), guesses)
        for sequence in decoding:
            draft = sequence.guess[: width - 1]
            if draft and grow(sequence, len(sequence.tokens) + len(draft)):
                sequence.draft = draft
        return 1 + max(len(sequence.draft) for sequence in decoding)

    def learn(self, sequence: Sequence, tokens: list[int]) -> None:
        """Take in what was sampled where `guess` was expected; the draft is done with."""
        for token, guess in zip(tokens, sequence.guess, strict=False):
            sequence.hope += _HOPE_RATE * ((token == guess) - sequence.hope)
        if sequence.draft:
            accepted = len(tokens) - 1
            self.drafts += 1
            self.drafted += len(sequence.draft)
            self.accepted += accepted
            for position in range(accepted):
                self.accepted_per_position[position] += 1
        sequence.draft = []
        sequence.guess = []

    def _guess(self, sequence: Sequence) -> list[int]:
        size = len(sequence.tokens)
        most = min(self._most, sequence.limit - size - 1)
        if sequence.ngrams is None or most < 1:
            return []
        return sequence.ngrams.draft(sequence.tokens, most)
