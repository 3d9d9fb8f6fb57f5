"""The scheduler with a draft head: what the head sees is what belongs there, whatever else runs."""

from __future__ import annotations

from array import array
from dataclasses import replace
from random import Random

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st
from msgspec import structs

from panel.server.cache import Cache
from panel.server.cuda.cycle import Cycle, Tokens
from panel.server.draft.places import Places
from panel.server.messages import Generate
from panel.server.plan import Plan, Segment, Work
from panel.server.schedule import Choice, Limits, Scheduled
from panel.server.scheduler import Scheduler
from panel.server.sequence import Sequence
from tests.server.test_scheduler import (
    VOCABULARY,
    Model,
    following,
    make_cache,
    requests,
    text_after,
)

Prefix = tuple[int, ...]


class HeadModel(Model):
    """A model whose head follows the plans as the ranks do; entries and features are prefixes."""

    def __init__(self, page_size: int, pages: int, draft_tokens: int, seed: int) -> None:
        super().__init__(page_size)
        self.places = Places(pages + 1, 2 * (draft_tokens + 1), page_size)
        self.features: dict[tuple[int, int], Prefix] = {}
        self.entries: dict[tuple[int, int], Prefix] = {}
        self.guesses = Random(seed)
        self.drafts = 0

    def step(self, scheduler: Scheduler, scheduled: Scheduled) -> list[Choice]:
        plan = scheduled.plan
        drafting = plan.work is Work.DECODE and plan.width > 1
        if plan.extends:
            for sequence, segment in zip(scheduled.sequences, plan.decoding, strict=False):
                for position in range(segment.start - len(segment.fresh), segment.start + 1):
                    self.see(segment, position, sequence.tokens)
                known = sequence.tokens[segment.start - len(segment.fresh) : segment.start]
                assert segment.fresh == known
        if drafting:
            scheduler.drafter.reveal(
                scheduled.sequences, [self.draft(*pair) for pair in self.pairs(scheduled)]
            )
            segments = [
                structs.replace(segment, tokens=[sequence.tokens[-1], *sequence.draft])
                for sequence, segment in self.pairs(scheduled)
            ]
            scheduled = replace(scheduled, plan=structs.replace(plan, segments=segments))
        choices = self.run(scheduled)
        for number, (sequence, segment) in enumerate(self.pairs(scheduled)):
            decodes = number < len(plan.decoding)
            text = [*sequence.tokens, *sequence.draft]
            end = segment.start + len(segment.tokens)
            if plan.work is not Work.DECODE:
                self.see(segment, segment.start, text)
                for position in range(segment.start + 1, end):
                    self.entries[self.slot(segment, position)] = tuple(text[: position + 1])
            for position in range(segment.start, end):
                edge = (position + 1) % self.page_size == 0
                if decodes or edge or position == end - 1:
                    self.features[self.place(segment, position)] = tuple(text[: position + 1])
        return choices

    def pairs(self, scheduled: Scheduled) -> list[tuple[Sequence, Segment]]:
        return list(zip(scheduled.sequences, scheduled.plan.segments, strict=True))

    def see(self, segment: Segment, position: int, text: list[int]) -> None:
        """Make an entry of the token there and of the feature before it: the right one."""
        if position:
            feature = self.features[self.place(segment, position - 1)]
            assert feature == tuple(text[:position])
        self.entries[self.slot(segment, position)] = tuple(text[: position + 1])

    def draft(self, sequence: Sequence, segment: Segment) -> list[int]:
        """Guess, mostly right; all entries before have to be those of this text."""
        for position in range(1, segment.start + 1):
            entry = self.entries[self.slot(segment, position)]
            assert entry == tuple(sequence.tokens[: position + 1])
        text = list(sequence.tokens)
        for ahead in range(len(segment.tokens) - 1):
            if ahead:
                self.entries[self.slot(segment, segment.start + ahead)] = (-1,)
            wrong = self.guesses.random() < 0.3
            text.append((following(text) + wrong) % VOCABULARY)
        self.drafts += 1
        return text[len(sequence.tokens) :]

    def place(self, segment: Segment, position: int) -> tuple[int, int]:
        return segment.owner, int(self.places.of(segment, np.array([position]))[0])

    def slot(self, segment: Segment, position: int) -> tuple[int, int]:
        slot = int(self.places.slots(segment, np.array([position]))[0])
        assert slot // self.page_size in array("i", segment.pages)
        return segment.owner, slot


def make_scheduler(limits: Limits, *caches: Cache) -> Scheduler:
    return Scheduler(
        limits, caches, lambda request, limit: Sequence(request, limit, Random(0), drafted=0)
    )


@settings(max_examples=150, deadline=None)
@given(
    requests,
    st.integers(1, 5),
    st.integers(4, 24),
    st.integers(1, 5),
    st.integers(1, 40),
    st.integers(1, 4),
    st.booleans(),
    st.integers(1, 2),
    st.sampled_from([0.01, 0.4, 3.0]),
    st.booleans(),
)
def test_the_head_sees_the_right_features_whatever_else_runs(
    wanted: list[tuple[list[int], int, list[int], int, int]],
    page_size: int,
    page_count: int,
    max_running: int,
    chunk: int,
    draft_tokens: int,
    share: bool,
    owners: int,
    cost: float,
    adaptive: bool,
) -> None:
    caches = [make_cache(page_count, page_size, share=share, owner=n) for n in range(owners)]
    limits = Limits(
        VOCABULARY, 50, max_running, chunk, (1, 2, 4), draft_tokens, head=True, adaptive=adaptive
    )
    scheduler = make_scheduler(limits, *caches)
    model = HeadModel(page_size, page_count, draft_tokens, seed=len(wanted))
    most = min(50, page_count * page_size)
    arriving = [
        (at, Generate(str(n), tokens, count, temperature=0, stop_tokens=stop, priority=priority))
        for n, (tokens, count, stop, at, priority) in enumerate(wanted)
    ]
    texts: dict[str, list[int]] = {request.rid: [] for _, request in arriving}
    ended: dict[str, str] = {}
    for step in range(4000):
        for at, request in arriving:
            if at == step and scheduler.add(request) is not None:
                ended[request.rid] = "error"
        scheduled = scheduler.next()
        plan = scheduled.plan
        if plan.work is Work.IDLE:
            if step > 20:
                break
            continue
        if plan.work is Work.DECODE:
            seconds = 1 + cost * (plan.width - 1)
            scheduler.drafter.pace.learn(plan.rows, plan.width, seconds)
        for news in scheduler.commit(scheduled, model.step(scheduler, scheduled)):
            texts[news.rid] += news.tokens
            if news.finish:
                ended[news.rid] = news.finish
        assert scheduler.audit() == []
    assert scheduler.idle
    for _, request in arriving:
        if ended[request.rid] != "error":
            assert texts[request.rid] == text_after(request, most)


def drafted(cost: float, adaptive: bool) -> list[int]:
    """Return the widths of the decode steps of four long texts, when a token more costs `cost`."""
    limits = Limits(VOCABULARY, 400, 4, 64, (4,), 3, head=True, adaptive=adaptive)
    scheduler = make_scheduler(limits, make_cache(200, 8))
    model = HeadModel(8, 200, 3, seed=1)
    for number in range(4):
        scheduler.add(Generate(str(number), [number], 350, temperature=0))
    widths = []
    while not scheduler.idle:
        scheduled = scheduler.next()
        plan = scheduled.plan
        if plan.work is Work.DECODE:
            widths.append(plan.width)
            scheduler.drafter.pace.learn(plan.rows, plan.width, 1 + cost * (plan.width - 1))
        scheduler.commit(scheduled, model.step(scheduler, scheduled))
    return widths


def test_drafts_stop_where_they_do_not_pay_and_go_on_where_they_do() -> None:
    dear, cheap, always = drafted(3.0, True), drafted(0.05, True), drafted(3.0, False)
    assert dear.count(1) > 0.9 * len(dear)
    assert cheap.count(4) > 0.8 * len(cheap)
    assert always.count(4) > 0.8 * len(always)


def test_a_plan_with_drafts_is_extended_and_one_without_now_and_then() -> None:
    limits = Limits(VOCABULARY, 100, 1, 64, (1,), 3, head=True)
    scheduler = make_scheduler(limits, make_cache(50, 8))
    scheduler.add(Generate("a", [1, 2, 3], 60, temperature=0))
    model = HeadModel(8, 50, 3, seed=1)
    plans: list[Plan] = []
    while not scheduler.idle:
        scheduled = scheduler.next()
        plans.append(scheduled.plan)
        scheduler.commit(scheduled, model.step(scheduler, scheduled))
    plain = [plan for plan in plans if plan.work is Work.DECODE]
    assert [plan.width for plan in plain] == [1] * len(plain)
    assert [plan.extends for plan in plain[:8]] == [False, False, False, True] * 2


def test_a_cycle_knows_the_pages_of_the_one_after_it() -> None:
    """So that a head may go on by itself: four texts with pages enough, to the end of each."""
    limits = Limits(VOCABULARY, 400, 4, 64, (4,), 3, head=True, adaptive=False)
    scheduler = make_scheduler(limits, make_cache(200, 4))
    model = HeadModel(4, 200, 3, seed=1)
    for number in range(4):
        scheduler.add(Generate(str(number), [number], 100 + number, temperature=0))
    before: Cycle | None = None
    sampled: Tokens = np.empty(0, np.int64)
    foreseen = 0
    while not scheduler.idle:
        scheduled = scheduler.next()
        plan = scheduled.plan
        cycle = None
        if plan.work is Work.DECODE:
            scheduler.drafter.pace.learn(plan.rows, plan.width, 1.0)
            if plan.width > 1:
                cycle = Cycle.of(plan, list(range(len(plan.segments))))
        if before is not None and cycle is not None:
            same = len(before.segments) == len(cycle.segments)
            assert before.goes_on(cycle, sampled, 4) is same
            if same and all(len(segment.tokens) == 4 for segment in cycle.segments):
                assert before.foresees(cycle, 4, 4)
                foreseen += 1
        before = cycle
        choices = model.step(scheduler, scheduled)
        sampled = tokens_of(choices, plan.width)
        scheduler.commit(scheduled, choices)
    assert foreseen > 20


def tokens_of(choices: list[Choice], width: int) -> Tokens:
    """Return what a device samples, as far as drafts are followed."""
    return np.array([(each.tokens + [-1] * width)[:width] for each in choices]).ravel()


def test_a_text_in_the_place_of_one_that_ended_is_not_taken_for_it() -> None:
    """It has the seat, the pages and the position, but another last token than was sampled."""
    limits = Limits(9, 100, 1, 64, (1,), 3, head=True, adaptive=False)
    scheduler = make_scheduler(limits, make_cache(50, 4))
    for _ in range(8):
        scheduler.drafter.pace.learn(1, 1, 1.0)
    scheduler.add(Generate("a", [1, 2, 3], 9, temperature=0, stop_tokens=[6]))
    scheduler.commit(scheduler.next(), [Choice([5])])
    first = scheduler.next()
    assert scheduler.commit(first, [Choice([6])])[0].finish == "stop"
    scheduler.add(Generate("b", [1, 2, 3, 5, 7], 20, temperature=0))
    second = scheduler.next()
    before, after = (Cycle.of(each.plan, [0]) for each in (first, second))
    assert after.segments[0].tokens == [7, 0, 0, 0]
    assert before.goes_on(after, np.array([7, 0, 0, 0]), 4)
    assert not before.goes_on(after, np.array([6, 0, 0, 0]), 4)


def test_a_text_that_goes_on_from_an_answer_finds_whole_pages_alone() -> None:
    limits = Limits(VOCABULARY, 200, 1, 64, (1,), 3, head=True, adaptive=False)
    scheduler = make_scheduler(limits, make_cache(80, 4))
    model = HeadModel(4, 80, 3, seed=1)
    text = [1, 2, 3]
    for turn in range(20):
        scheduler.add(Generate(str(turn), list(text), 9, temperature=0))
        while not scheduler.idle:
            scheduled = scheduler.next()
            plan = scheduled.plan
            if plan.work is Work.DECODE:
                scheduler.drafter.pace.learn(plan.rows, plan.width, 1.0)
            for news in scheduler.commit(scheduled, model.step(scheduler, scheduled)):
                text += news.tokens
    assert model.drafts > 20
    assert scheduler.counters.cached_tokens > 0.8 * scheduler.counters.prompt_tokens
