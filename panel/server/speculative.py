"""N-gram speculation: guess that a sequence goes on as it did after the same words before."""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence
from statistics import median
from typing import NamedTuple


class NgramIndex:
    """Where each n-gram of one sequence was last followed by something."""

    def __init__(self, longest: int, shortest: int) -> None:
        self._sizes = range(longest, shortest - 1, -1)
        self._follows: dict[tuple[int, ...], int] = {}
        self._seen = 0

    def draft(self, tokens: Sequence[int], most: int) -> list[int]:
        """Return `most` tokens copied from behind the latest match of the longest known suffix.

        A match so near the end that the copy reaches it goes on into the copy itself: text that
        repeats keeps repeating. Empty without a match. `tokens` only ever grows between calls.
        """
        self._learn(tokens)
        for size in self._sizes:
            if size <= len(tokens):
                position = self._follows.get(tuple(tokens[-size:]))
                if position is not None:
                    period = tokens[position : position + most]
                    return [period[step % len(period)] for step in range(most)]
        return []

    def _learn(self, tokens: Sequence[int]) -> None:
        for end in range(max(self._seen, 1), len(tokens)):
            for size in self._sizes:
                if size <= end:
                    self._follows[tuple(tokens[end - size : end])] = end
        self._seen = len(tokens)


class Guess(NamedTuple):
    """What could be drafted for one sequence."""

    length: int
    hope: float
    """How likely each of its tokens is right where those before it are."""

    def tokens(self, drafted: int) -> float:
        """Return how many tokens a step is expected to give with that many of them drafted."""
        return sum(self.hope**step for step in range(min(drafted, self.length) + 1))


class Pace:
    """What a step costs that computes more than one token of each sequence, learnt while serving.

    Each further token is taken to cost the same share of a step with one. Medians of the last few
    steps are compared, because other work on the machine comes and goes.
    """

    _SHARE = 0.1
    """The share before anything is known."""
    _WINDOW = 32
    _KNOWN = 8
    """Plain steps after which their time is known."""
    _EVERY = 32
    """Steps after which one without drafts is due, so that it stays known."""

    def __init__(self) -> None:
        self._since: dict[int, int] = {}
        self._plain: dict[int, deque[float]] = {}
        self._longer: dict[int, deque[tuple[int, float]]] = {}

    def learn(self, rows: int, width: int, seconds: float) -> None:
        """Take in one step of `rows` sequences after padding."""
        if width == 1:
            self._since[rows] = 0
            # Fewer of them, so that they are about as old as those with drafts.
            self._plain.setdefault(rows, deque(maxlen=self._KNOWN)).append(seconds)
        else:
            longer = self._longer.setdefault(rows, deque(maxlen=self._WINDOW))
            longer.append((width, seconds))

    def knows(self, rows: int) -> bool:
        """True once enough steps of so many sequences without drafts have been seen."""
        return len(self._plain.get(rows, ())) >= self._KNOWN

    def compares(self, rows: int) -> bool:
        """True once so many steps of both kinds were seen that what drafts cost can be told.

        A step with drafts is never the cheaper one: where it seems so, the plain steps known are
        those of a start, which were slow.
        """
        longer = self._longer.get(rows, ())
        return self.knows(rows) and len(longer) >= self._KNOWN and self.cost(rows, 2) > 1

    def is_curious(self, rows: int) -> bool:
        """True where a step without drafts is due, which tells what drafts cost; counts steps."""
        self._since[rows] = self._since.get(rows, 0) + 1
        return not self.knows(rows) or self._since[rows] > self._EVERY

    def cost(self, rows: int, width: int) -> float:
        """Return how long a step takes, where one of width 1 takes 1."""
        return 1 + self._share(rows) * (width - 1)

    def best_width(self, rows: int, others: int, guesses: Sequence[Guess]) -> int:
        """Return the tokens a sequence with which a step of `rows` gives most text a second.

        `guesses` are of the sequences that have one, `others` counts those that have none.
        """

        share = self._share(rows)

        def speed(width: int) -> float:
            expected = others + sum(guess.tokens(width - 1) for guess in guesses)
            return expected / (1 + share * (width - 1))

        longest = max((guess.length for guess in guesses), default=0)
        return max(range(1, longest + 2), key=speed)

    def _share(self, rows: int) -> float:
        """Return what each further token costs, where a step with one costs 1."""
        shares = [self._SHARE]
        if rows in self._plain:
            plain = median(self._plain[rows])
            longer = self._longer.get(rows, ())
            shares += [(seconds / plain - 1) / (each - 1) for each, seconds in longer]
        return max(0.0, median(shares))
