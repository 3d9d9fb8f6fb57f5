"""What runs in the next step: continuous batching over a paged cache."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field

from panel.server.graphs import padded
from panel.server.messages import Finish, Generate, TokenLogprob, Tokens
from panel.server.pages import PageAllocator
from panel.server.plan import Plan, Segment, Work
from panel.server.sequence import Sequence


@dataclass(frozen=True, slots=True)
class Limits:
    """The bounds of a schedule."""

    vocab_size: int
    max_context: int
    max_running: int
    chunk: int
    """Prompt tokens in one step at most."""
    buckets: tuple[int, ...]
    draft_tokens: int
    """Most guessed tokens of a sequence; 0 without speculation."""


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
    generated_tokens: int = 0
    preemptions: int = 0
    drafts: int = 0
    draft_tokens: int = 0
    accepted_tokens: int = 0
    accepted_per_position: list[int] = field(default_factory=list)


@dataclass(frozen=True, slots=True)
class Scheduled:
    """A step: the plan, and the sequences of its segments in the same order."""

    plan: Plan
    sequences: tuple[Sequence, ...] = ()

    @property
    def sampled(self) -> list[Sequence]:
        """The sequences for which logits come back, in the order of their rows."""
        pairs = zip(self.sequences, self.plan.segments, strict=True)
        return [sequence for sequence, segment in pairs if segment.logits]


class Scheduler:
    """Sequences that wait and run.

    Prefill and decode are steps of their own and take turns while both have work. A sequence is
    admitted with the pages of its whole prompt; when decode finds no page, the youngest sequence
    gives its pages back and starts over from its tokens.
    """

    def __init__(
        self, limits: Limits, pages: PageAllocator, make: Callable[[Generate, int], Sequence]
    ) -> None:
        """`make` builds a sequence from a request and the most tokens it may come to."""
        self.waiting: deque[Sequence] = deque()
        self.running: list[Sequence] = []
        self.counters = Counters(accepted_per_position=[0] * limits.draft_tokens)
        self._limits = limits
        self._pages = pages
        self._make = make
        self._prefilled_last = False

    @property
    def idle(self) -> bool:
        """True where nothing waits or runs."""
        return not self.waiting and not self.running

    def add(self, request: Generate) -> Tokens | None:
        """Queue a request; return the news of its end where it cannot be served."""
        reason = self._refusal(request)
        if reason is not None:
            return Tokens(request.rid, [], finish="error", error=reason)
        limit = len(request.tokens) + request.max_new_tokens
        self.waiting.append(self._make(request, min(limit, self._most_tokens)))
        self.counters.prompt_tokens += len(request.tokens)
        return None

    def abort(self, rid: str | None) -> list[Tokens]:
        """End one sequence, or all where `rid` is None; return their last news."""
        ended = [s for s in (*self.running, *self.waiting) if rid is None or s.rid == rid]
        for sequence in ended:
            self._drop(sequence)
        return [Tokens(sequence.rid, [], finish="abort") for sequence in ended]

    def next(self, *, draining: bool = False) -> Scheduled:
        """Return the next step; an idle one where nothing can be done."""
        scheduled = None
        if self.waiting and not (self._prefilled_last and self.running):
            scheduled = self._prefill(draining)
        self._prefilled_last = scheduled is not None
        if scheduled is None and self.running:
            scheduled = self._decode(draining)
        return scheduled or Scheduled(Plan(Work.IDLE, draining=draining))

    def commit(self, scheduled: Scheduled, choices: Iterable[Choice]) -> list[Tokens]:
        """Take in a step's result: one choice for each of `scheduled.sampled`."""
        decode = scheduled.plan.work is Work.DECODE
        for sequence, segment in zip(scheduled.sequences, scheduled.plan.segments, strict=True):
            sequence.computed += len(segment.tokens)
            if not decode and segment.logits:
                self.waiting.remove(sequence)
                self.running.append(sequence)
        return [
            self._advance(sequence, choice)
            for sequence, choice in zip(scheduled.sampled, choices, strict=True)
        ]

    @property
    def _most_tokens(self) -> int:
        return min(self._limits.max_context, self._pages.count * self._pages.page_size)

    def _refusal(self, request: Generate) -> str | None:
        size = len(request.tokens)
        if not size:
            return "the prompt is empty"
        if request.max_new_tokens < 1:
            return "max_new_tokens is below 1"
        if size >= self._most_tokens:
            return (
                f"the prompt has {size} tokens; prompt and answer together may have "
                f"{self._most_tokens}"
            )
        if min(request.tokens) < 0 or max(request.tokens) >= self._limits.vocab_size:
            return f"token ids go from 0 to {self._limits.vocab_size - 1}"
        if any(s.rid == request.rid for s in (*self.waiting, *self.running)):
            return f"request {request.rid} runs already"
        return None

    def _prefill(self, draining: bool) -> Scheduled | None:
        budget = self._limits.chunk
        seats = self._limits.max_running - len(self.running)
        segments: list[Segment] = []
        sequences: list[Sequence] = []
        for sequence in self.waiting:
            if budget == 0 or len(sequences) == seats:
                break
            if not sequence.pages and not self._admit(sequence, len(sequences)):
                break
            begin = sequence.computed
            size = min(budget, len(sequence.tokens) - begin)
            budget -= size
            whole = begin + size == len(sequence.tokens)
            segments.append(
                Segment(
                    sequence.tokens[begin : begin + size], begin, sequence.pages.tobytes(), whole
                )
            )
            sequences.append(sequence)
        if not segments:
            return None
        return Scheduled(Plan(Work.PREFILL, segments, draining=draining), tuple(sequences))

    def _admit(self, sequence: Sequence, others: int) -> bool:
        """Give a sequence its prompt's pages, leaving one for each that runs."""
        reserve = len(self.running) + others
        if self._pages.missing(sequence.pages, len(sequence.tokens)) + reserve > self._pages.free:
            return False
        return self._pages.grow(sequence.pages, len(sequence.tokens))

    def _decode(self, draining: bool) -> Scheduled:
        for sequence in tuple(self.running):
            while sequence.pages and not self._pages.grow(sequence.pages, len(sequence.tokens)):
                self._preempt()
        for sequence in self.running:
            self._guess(sequence)
        guessed = any(sequence.draft for sequence in self.running)
        plan = Plan(
            Work.DECODE,
            [
                Segment([s.tokens[-1], *s.draft], s.computed, s.pages.tobytes())
                for s in self.running
            ],
            rows=padded(len(self.running), self._limits.buckets),
            width=1 + self._limits.draft_tokens if guessed else 1,
            draining=draining,
        )
        return Scheduled(plan, tuple(self.running))

    def _guess(self, sequence: Sequence) -> None:
        """Draft for one sequence; a guess never takes a page that another has to give up."""
        sequence.draft = []
        size = len(sequence.tokens)
        most = min(self._limits.draft_tokens, sequence.limit - size - 1)
        if sequence.ngrams is not None and most > 0:
            draft = sequence.ngrams.draft(sequence.tokens, most)
            if draft and self._pages.grow(sequence.pages, size + len(draft)):
                sequence.draft = draft

    def _preempt(self) -> None:
        """Take the pages of the youngest sequence that has some."""
        if self.waiting and self.waiting[0].pages:
            victim = self.waiting[0]
        else:
            victim = self.running.pop()
            self.waiting.appendleft(victim)
        self._pages.release(victim.pages)
        victim.computed = 0
        victim.draft = []
        self.counters.preemptions += 1

    def _advance(self, sequence: Sequence, choice: Choice) -> Tokens:
        if choice.error is not None:
            self._drop(sequence)
            return Tokens(sequence.rid, [], finish="error", error=choice.error)
        if sequence.draft:
            self._count_draft(len(sequence.draft), len(choice.tokens) - 1)
            sequence.draft = []
        taken: list[int] = []
        finish: Finish | None = None
        for token in choice.tokens:
            taken.append(token)
            if token in sequence.request.stop_tokens:
                finish = "stop"
            elif len(sequence.tokens) + len(taken) >= sequence.limit:
                finish = "length"
            if finish is not None:
                break
        sequence.tokens += taken
        sequence.computed = len(sequence.tokens) - 1
        self.counters.generated_tokens += len(taken)
        if finish is not None:
            self._drop(sequence)
        logprobs = choice.logprobs and choice.logprobs[: len(taken)]
        return Tokens(sequence.rid, taken, logprobs, finish)

    def _count_draft(self, drafted: int, accepted: int) -> None:
        counters = self.counters
        counters.drafts += 1
        counters.draft_tokens += drafted
        counters.accepted_tokens += accepted
        for position in range(accepted):
            counters.accepted_per_position[position] += 1

    def _drop(self, sequence: Sequence) -> None:
        (self.running if sequence in self.running else self.waiting).remove(sequence)
        self._pages.release(sequence.pages)
