"""A request on its way through the engine."""

from __future__ import annotations

from array import array
from dataclasses import dataclass, field
from random import Random

from panel.server.messages import Generate
from panel.server.prefix import Node
from panel.server.speculative import NgramIndex


@dataclass(slots=True, eq=False)
class Sequence:
    """Tokens, cache pages and random numbers of one request."""

    request: Generate
    limit: int
    """Most tokens, prompt included."""
    random: Random
    """Asked through `number` and `numbers_ahead` alone."""
    ngrams: NgramIndex | None = None
    arrival: int = 0
    """Number of the request since start."""
    arrived: float = 0.0
    """When it came (CLOCK_MONOTONIC)."""
    queued: float | None = None
    """Seconds it waited for room in the batch, once it has some."""
    cached: int = 0
    """Tokens of the prompt that were in the cache when it got room."""
    scored: int = 0
    """How many tokens of the prompt, after the first, have their log probabilities."""
    tokens: list[int] = field(init=False)
    """Prompt and answer so far."""
    unknown: int = 0
    """How many of the last tokens are sampled but not known here yet; see `plan.py`."""
    computed: int = 0
    """How many of the tokens are in the cache, once the steps under way are done."""
    drafted: int | None = None
    """How many of the tokens are in the cache of the draft head, as `computed`; None without one.
    """
    seat: int = 0
    """Where a draft head keeps what it saw last, while the sequence runs."""
    owner: int = 0
    """Under data-parallel attention the rank that computes and caches it."""
    pages: array[int] = field(default_factory=lambda: array("i"))
    node: Node | None = None
    """Where its shared pages end in the tree; None without pages."""
    draft: list[int] = field(default_factory=list)
    """What is guessed to follow, for the step at hand."""
    guess: list[int] = field(default_factory=list)
    """What could be drafted, whether or not it is."""
    hope: float = 0.5
    """How likely the next guess is right, by those before."""
    ahead: list[float] = field(default_factory=list)
    """Random numbers that were looked at and not used up."""

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

    @property
    def answered(self) -> bool:
        """True once a token was generated."""
        return len(self.tokens) > len(self.request.tokens)

    @property
    def scoring(self) -> bool:
        """True while the log probabilities of its prompt are wanted and not all known."""
        return self.request.prompt_logprobs and self.scored < len(self.request.tokens) - 1

    @property
    def pending(self) -> int:
        """Tokens that are not in the cache: one where it decodes, more where it prefills."""
        return len(self.tokens) - self.computed

    @property
    def decodes(self) -> bool:
        """True where the next step can compute one more token of it."""
        return self.pending == 1 and len(self.tokens) < self.limit

    @property
    def settled(self) -> int:
        """How many of the tokens are in the cache by steps whose result is known."""
        settled = min(self.computed, len(self.tokens) - self.unknown - 1)
        return settled if self.drafted is None else min(settled, self.drafted)

    @property
    def fresh(self) -> list[int]:
        """Tokens in the cache that the draft head has not seen."""
        return [] if self.drafted is None else self.tokens[self.drafted : self.computed]

    def number(self) -> float:
        """Use up the next random number, from [0, 1)."""
        return self.ahead.pop(0) if self.ahead else self.random.random()

    def numbers_ahead(self, count: int) -> list[float]:
        """Return the next random numbers without using them up."""
        missing = count - len(self.ahead)
        self.ahead += [self.random.random() for _ in range(missing)]
        return self.ahead[:count]

    def use(self, count: int) -> None:
        """Use up so many of the numbers looked at."""
        del self.ahead[:count]

    def forget_unknown(self) -> list[int]:
        """Drop the tokens that are not known; return all but the first of them."""
        begin = len(self.tokens) - self.unknown
        later = self.tokens[begin + 1 :]
        del self.tokens[begin:]
        self.unknown = 0
        return later

    @property
    def place(self) -> tuple[int, int]:
        """Its place among all sequences: the lowest goes first and is put back last."""
        return -self.request.priority, self.arrival
