"""What runs in the next step: continuous batching over a paged cache."""

from __future__ import annotations

import itertools
import time
from bisect import bisect_left, insort
from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from collections.abc import Sequence as Sequences
from operator import attrgetter

from panel.server.cache import Cache
from panel.server.drafting import Drafter
from panel.server.graphs import padded
from panel.server.messages import Finish, Generate, Tokens
from panel.server.plan import Plan, Segment, Work
from panel.server.schedule import Choice, Counters, Limits, Scheduled
from panel.server.sequence import Sequence

_place = attrgetter("place")


class Scheduler:
    """Sequences that wait and run, each list in the order of their `place`.

    A sequence that runs has pages for its prompt at least. Those with one pending token decode,
    those with more prefill, all in the same step, in which prompts share what the decoding
    sequences leave of its tokens. When one finds no page to go on, the last in order gives its
    pages back and waits to start over from its tokens.
    """

    def __init__(
        self,
        limits: Limits,
        caches: Sequences[Cache],
        make: Callable[[Generate, int], Sequence],
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        """`make` builds a sequence from a request and the most tokens it may come to.

        There is one cache, or under data-parallel attention one of each rank, all alike.
        """
        self.waiting: list[Sequence] = []
        self.running: list[Sequence] = []
        self.counters = Counters()
        self.drafter = Drafter(limits.draft_tokens, head=limits.head, adaptive=limits.adaptive)
        self._limits = limits
        self._caches = caches
        self._make = make
        self._clock = clock
        self._arrivals = itertools.count()
        self._sequences: dict[str, Sequence] = {}
        self._seats = list(range(limits.max_running))

    @property
    def idle(self) -> bool:
        """True where nothing waits or runs."""
        return not self._sequences

    def add(self, request: Generate) -> Tokens | None:
        """Queue a request; return the news of its end where it cannot be served."""
        reason = self._refusal(request)
        if reason is not None:
            return Tokens(request.rid, [], finish="error", error=reason)
        limit = len(request.tokens) + request.max_new_tokens
        sequence = self._make(request, min(limit, self._most_tokens))
        sequence.arrival = next(self._arrivals)
        sequence.arrived = self._clock()
        self._sequences[request.rid] = sequence
        insort(self.waiting, sequence, key=_place)
        return None

    def abort(self, rid: str | None) -> list[Tokens]:
        """End one sequence, or all where `rid` is None; return their last news."""
        if rid is None:
            ended = list(self._sequences.values())
        else:
            ended = [self._sequences[rid]] if rid in self._sequences else []
        for sequence in ended:
            self._end(sequence)
        return [Tokens(sequence.rid, [], finish="abort") for sequence in ended]

    def next(self, *, draining: bool = False) -> Scheduled:
        """Return the next step; an idle one where nothing can be done."""
        for sequence in tuple(self.running):
            if sequence.decodes:
                self._secure(sequence)
        decoding = self._decoding()
        if self.waiting or len(decoding) < len(self.running):
            room = max(self._limits.chunk, self._limits.max_running)
            chunks = self._chunks(room - len(decoding), self._limits.logit_rows - len(decoding))
            # Who is let in with all tokens but one in the cache decodes at once.
            decoding = self._decoding()
            if chunks:
                return self._mixed(decoding, chunks, draining)
        if decoding:
            return self._decode(decoding, draining)
        return Scheduled(Plan(Work.IDLE, draining=draining))

    def commit(self, scheduled: Scheduled, choices: Iterable[Choice]) -> list[Tokens]:
        """Take in a step's result: one choice for each of `scheduled.sampled`."""
        _count_computed(scheduled)
        return self._take(scheduled, choices)

    def expect(self, scheduled: Scheduled) -> None:
        """Let the step after this one be planned before its result is there.

        Each of `scheduled.sampled` is taken to get one token. `settle` has to follow before the
        step after the next is planned.
        """
        _count_computed(scheduled)
        for number, sequence in enumerate(scheduled.sampled):
            sequence.tokens.append(-1 - number)
            sequence.unknown += 1

    def settle(self, scheduled: Scheduled, choices: Iterable[Choice]) -> list[Tokens]:
        """Take in the result of the oldest step expected; what ended meanwhile is left out."""
        return self._take(scheduled, choices)

    def audit(self) -> list[str]:
        """Return what is wrong with the books of the caches."""
        return [
            problem
            for cache in self._caches
            for problem in cache.audit(s for s in self.running if s.owner == cache.owner)
        ]

    @property
    def _most_tokens(self) -> int:
        return min(self._limits.max_context, self._caches[0].capacity)

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
        if request.rid in self._sequences:
            return f"request {request.rid} runs already"
        return None

    def _secure(self, sequence: Sequence) -> None:
        """Get a sequence the page of its next token, or put it back itself."""
        cache = self._caches[sequence.owner]
        while sequence.pages and not cache.grow(sequence, len(sequence.tokens)):
            victim = next(s for s in reversed(self.running) if s.owner == sequence.owner)
            self._leave(victim)
            insort(self.waiting, victim, key=_place)
            self.counters.preemptions += 1

    def _decoding(self) -> list[Sequence]:
        return [sequence for sequence in self.running if sequence.decodes]

    def _chunks(self, room: int, rows: int) -> list[tuple[Sequence, int]]:
        """Return who prefills how many tokens, `room` together with `rows` of logits."""
        chunks = []
        for sequence in self._prefilling():
            size = min(room, sequence.pending)
            if sequence.scoring:
                size = min(size, rows)
            if sequence.pending > 1:
                chunks.append((sequence, size))
            room -= size
            rows -= size if sequence.scoring else 1
            if not (room and rows):
                break
        return chunks

    def _prefilling(self) -> Iterator[Sequence]:
        """Yield the sequences with a prompt to compute; admits from the queue as far as asked."""
        yield from [sequence for sequence in self.running if sequence.pending > 1]
        while self.waiting and len(self.running) < self._limits.max_running:
            if not self._admit(self.waiting[0]):
                return
            yield self.waiting.pop(0)

    def _admit(self, sequence: Sequence) -> bool:
        """Give a sequence its prompt's pages, leaving one for each that runs beside it."""
        loads = Counter(other.owner for other in self.running)
        cache = min(self._caches, key=lambda cache: loads[cache.owner])
        if not cache.open(sequence, loads[cache.owner]):
            return False
        sequence.owner = cache.owner
        sequence.seat = self._seats.pop()
        if sequence.drafted is not None:
            sequence.drafted = sequence.computed
        insort(self.running, sequence, key=_place)
        if sequence.queued is None:
            sequence.queued = self._clock() - sequence.arrived
            sequence.cached = sequence.computed
            self.counters.prompt_tokens += len(sequence.request.tokens)
            self.counters.cached_tokens += sequence.cached
        return True

    def _decode(self, decoding: list[Sequence], draining: bool) -> Scheduled:
        rows = padded(self._most_of_one_owner(decoding), self._limits.buckets)
        width = self.drafter.draft(
            decoding, rows, lambda s, tokens: self._caches[s.owner].grow(s, tokens)
        )
        # Without drafts the head sees what it has missed in one go, before it is too much.
        fresh = [s.fresh for s in decoding]
        missed = max(map(len, fresh))
        extends = self._limits.head and (width > 1 or missed >= self._limits.draft_tokens)
        segments = [
            Segment(
                [s.tokens[-1], *s.draft],
                s.computed,
                s.pages.tobytes(),
                owner=s.owner,
                seat=s.seat,
                fresh=missing if extends else [],
            )
            for s, missing in zip(decoding, fresh, strict=True)
        ]
        plan = Plan(
            Work.DECODE, segments, rows=rows, width=width, extends=extends, draining=draining
        )
        return Scheduled(plan, tuple(decoding))

    def _mixed(
        self, decoding: list[Sequence], chunks: list[tuple[Sequence, int]], draining: bool
    ) -> Scheduled:
        parts = [*((sequence, 1) for sequence in decoding), *chunks]
        plan = Plan(
            Work.MIXED if decoding else Work.PREFILL,
            [_segment(sequence, size) for sequence, size in parts],
            rows=self._most_of_one_owner(decoding),
            extends=any(sequence.fresh for sequence in decoding),
            draining=draining,
            decodes=len(decoding),
        )
        return Scheduled(plan, tuple(sequence for sequence, _ in parts))

    def _most_of_one_owner(self, sequences: Sequences[Sequence]) -> int:
        if len(self._caches) == 1:
            return len(sequences)
        return max(Counter(sequence.owner for sequence in sequences).values(), default=0)

    def _take(self, scheduled: Scheduled, choices: Iterable[Choice]) -> list[Tokens]:
        return [
            self._advance(sequence, choice)
            for sequence, choice in zip(scheduled.sampled, choices, strict=True)
            if self._sequences.get(sequence.rid) is sequence
        ]

    def _advance(self, sequence: Sequence, choice: Choice) -> Tokens:
        later = sequence.forget_unknown() if sequence.unknown else []
        if choice.error is not None:
            self._end(sequence, sound=False)
            return Tokens(sequence.rid, [], finish="error", error=choice.error)
        first = not sequence.answered
        self.drafter.learn(sequence, choice.tokens)
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
        if finish is None:
            sequence.tokens += later
            sequence.unknown = len(later)
        sequence.computed = min(sequence.computed, len(sequence.tokens) - 1)
        self.counters.generated_tokens += len(taken)
        if finish is not None:
            self._end(sequence)
        elif first:
            self._caches[sequence.owner].remember(sequence)
        return Tokens(
            sequence.rid,
            taken,
            choice.logprobs and choice.logprobs[: len(taken)],
            finish,
            cached_tokens=sequence.cached if first else 0,
            queued=sequence.queued if first else None,
        )

    def _end(self, sequence: Sequence, *, sound: bool = True) -> None:
        del self._sequences[sequence.rid]
        if sequence.node is None:
            _remove(self.waiting, sequence)
        else:
            self._leave(sequence, sound=sound)

    def _leave(self, sequence: Sequence, *, sound: bool = True) -> None:
        """Take a sequence out of the batch; pages are remembered once their logits were sound."""
        _remove(self.running, sequence)
        self._seats.append(sequence.seat)
        cache = self._caches[sequence.owner]
        if sound and sequence.answered and sequence.pending == 1:
            cache.remember(sequence)
        cache.close(sequence)


def _count_computed(scheduled: Scheduled) -> None:
    for sequence, segment in zip(scheduled.sequences, scheduled.plan.segments, strict=True):
        sequence.computed += len(segment.tokens)
        if sequence.drafted is None:
            continue
        if scheduled.plan.work is not Work.DECODE:
            sequence.drafted = segment.start + len(segment.tokens)
        elif scheduled.plan.extends:
            sequence.drafted = segment.start + 1


def _remove(ordered: list[Sequence], sequence: Sequence) -> None:
    del ordered[bisect_left(ordered, sequence.place, key=_place)]


def _segment(sequence: Sequence, size: int) -> Segment:
    """Return the next `size` pending tokens of a sequence."""
    end = sequence.computed + size
    tokens = sequence.tokens[sequence.computed : end]
    whole = end == len(sequence.tokens)
    pages = sequence.pages.tobytes()
    return Segment(
        tokens,
        sequence.computed,
        pages,
        whole,
        sequence.owner,
        sequence.seat,
        sequence.fresh,
        sequence.scoring,
    )
