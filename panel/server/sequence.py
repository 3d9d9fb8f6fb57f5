"""A request on its way through the engine."""

from __future__ import annotations

from array import array
from dataclasses import dataclass, field
from random import Random

from panel.server.messages import Generate
from panel.server.speculative import NgramIndex


@dataclass(slots=True, eq=False)
class Sequence:
    """Tokens, cache pages and random numbers of one request."""

    request: Generate
    limit: int
    """Most tokens, prompt included."""
    random: Random
    ngrams: NgramIndex | None = None
    tokens: list[int] = field(init=False)
    """Prompt and answer so far."""
    computed: int = 0
    """How many of the tokens are in the cache."""
    pages: array[int] = field(default_factory=lambda: array("i"))
    draft: list[int] = field(default_factory=list)
    """What is guessed to follow, for the step at hand."""

    def __post_init__(self) -> None:
        self.tokens = list(self.request.tokens)

    @property
    def rid(self) -> str:
        """The request's name."""
        return self.request.rid

    @property
    def answer(self) -> list[int]:
        """The tokens generated so far."""
        return self.tokens[len(self.request.tokens) :]
