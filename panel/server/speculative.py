"""N-gram speculation: guess that a sequence goes on as it did after the same words before."""

from __future__ import annotations

from collections.abc import Sequence as Tokens


class NgramIndex:
    """Where each n-gram of one sequence was last followed by something."""

    def __init__(self, longest: int, shortest: int) -> None:
        self._sizes = range(longest, shortest - 1, -1)
        self._follows: dict[tuple[int, ...], int] = {}
        self._seen = 0

    def draft(self, tokens: Tokens[int], most: int) -> list[int]:
        """Return at most `most` tokens that followed the longest known suffix of `tokens`.

        `tokens` only ever grows between calls.
        """
        self._learn(tokens)
        for size in self._sizes:
            if size <= len(tokens):
                position = self._follows.get(tuple(tokens[-size:]))
                if position is not None:
                    return list(tokens[position : position + most])
        return []

    def _learn(self, tokens: Tokens[int]) -> None:
        for end in range(max(self._seen, 1), len(tokens)):
            for size in self._sizes:
                if size <= end:
                    self._follows[tuple(tokens[end - size : end])] = end
        self._seen = len(tokens)
