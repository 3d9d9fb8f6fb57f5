"""The scheduler against a model that needs no weights: the next token is a function of the text."""

from __future__ import annotations

from array import array
from collections.abc import Sequence as Sequences
from random import Random

from hypothesis import given, settings
from hypothesis import strategies as st

from panel.server.cache import Cache
from panel.server.messages import Generate, Tokens
from panel.server.pages import PageAllocator
from panel.server.plan import Plan, Work, decode_plan, encode_plan
from panel.server.schedule import Choice, Limits, Scheduled
from panel.server.scheduler import Scheduler
from panel.server.sequence import Sequence
from panel.server.speculative import NgramIndex

VOCABULARY = 7


def following(tokens: Sequences[int]) -> int:
    return (sum(tokens[-3:]) * 5 + len(tokens) // 4) % VOCABULARY


def text_after(request: Generate, limit: int) -> list[int]:
    tokens = list(request.tokens)
    while len(tokens) < min(len(request.tokens) + request.max_new_tokens, limit):
        tokens.append(following(tokens))
        if tokens[-1] in request.stop_tokens:
            break
    return tokens[len(request.tokens) :]


class Model:
    """What the model would find at each slot; checks that nobody writes over another."""

    def __init__(self, page_size: int) -> None:
        self.page_size = page_size
        self.slots: dict[tuple[int, int], int] = {}
        self.computed = 0
        self.sampled: list[int] = []

    def run(self, scheduled: Scheduled) -> list[Choice]:
        plan = decode_plan(encode_plan(scheduled.plan))
        choices = []
        written: set[tuple[int, int]] = set()
        for sequence, segment in zip(scheduled.sequences, plan.segments, strict=True):
            pages = array("i", segment.pages)
            assert min(pages) > 0
            assert len(set(pages)) == len(pages)
            slots = [
                (segment.owner, page * self.page_size + offset)
                for page in pages
                for offset in range(self.page_size)
            ]
            end = segment.start + len(segment.tokens)
            mine = slots[segment.start : end]
            assert not written.intersection(slots[: segment.start])
            assert not written.intersection(mine)
            written.update(mine)
            self.computed += len(mine)
            self.slots.update(zip(mine, map(self.known, segment.tokens), strict=True))
            seen = [self.slots[slot] for slot in slots[:end]]
            text = [*map(self.known, sequence.tokens), *sequence.draft]
            assert seen == text[:end]
            if not segment.logits:
                continue
            taken = []
            for guess in [*sequence.draft, None]:
                taken.append(following(seen[: len(sequence.tokens) + len(taken)]))
                if guess != taken[-1]:
                    break
            choices.append(Choice(taken))
        assert len(choices) == len(plan.logit_begins)
        self.sampled = [choice.tokens[0] for choice in choices]
        return choices

    def known(self, token: int) -> int:
        """Return what a plan means by a token."""
        return token if token >= 0 else self.sampled[-1 - token]


class Ahead:
    """Takes in the result of each step only once the next one is under way."""

    def __init__(self, scheduler: Scheduler, model: Model) -> None:
        self.scheduler = scheduler
        self.model = model
        self.flight: tuple[Scheduled, list[Choice]] | None = None

    def step(self, scheduled: Scheduled) -> list[Tokens]:
        landed = self.flight
        self.flight = None
        if scheduled.plan.work is not Work.IDLE:
            self.flight = (scheduled, self.model.run(scheduled))
            self.scheduler.expect(scheduled)
        return [] if landed is None else self.scheduler.settle(*landed)


def make_scheduler(limits: Limits, *caches: Cache) -> Scheduler:
    def make(request: Generate, limit: int) -> Sequence:
        ngrams = NgramIndex(3, 1) if limits.draft_tokens else None
        return Sequence(request, limit, Random(0), ngrams)

    return Scheduler(limits, caches, make)


def make_cache(count: int, page_size: int, *, share: bool = True, owner: int = 0) -> Cache:
    return Cache(PageAllocator(count, page_size), share=share, owner=owner)


requests = st.lists(
    st.tuples(
        st.lists(st.integers(0, VOCABULARY - 1), min_size=1, max_size=30),
        st.integers(1, 30),
        st.lists(st.integers(0, VOCABULARY - 1), max_size=1),
        st.integers(0, 20),
        st.integers(-1, 1),
    ),
    min_size=1,
    max_size=8,
)


@settings(max_examples=150, deadline=None)
@given(
    requests,
    st.integers(1, 5),
    st.integers(4, 24),
    st.integers(1, 5),
    st.integers(1, 40),
    st.integers(0, 3),
    st.sets(st.integers(0, 7), max_size=2),
    st.booleans(),
    st.integers(1, 3),
    st.booleans(),
)
def test_every_request_gets_its_own_text_whatever_else_runs(
    wanted: list[tuple[list[int], int, list[int], int, int]],
    page_size: int,
    page_count: int,
    max_running: int,
    chunk: int,
    draft_tokens: int,
    aborted: set[int],
    share: bool,
    owners: int,
    ahead: bool,
) -> None:
    draft_tokens = 0 if ahead else draft_tokens
    caches = [make_cache(page_count, page_size, share=share, owner=n) for n in range(owners)]
    limits = Limits(VOCABULARY, 50, max_running, chunk, (1, 2, 4), draft_tokens)
    scheduler = make_scheduler(limits, *caches)
    model = Model(page_size)
    pipeline = Ahead(scheduler, model)
    most = min(50, page_count * page_size)
    arriving = [
        (
            at,
            Generate(str(n), tokens, count, temperature=0, stop_tokens=stop, priority=priority),
        )
        for n, (tokens, count, stop, at, priority) in enumerate(wanted)
    ]
    texts: dict[str, list[int]] = {request.rid: [] for _, request in arriving}
    finish: dict[str, str] = {}
    for step in range(4000):
        for at, request in arriving:
            if at == step:
                refused = scheduler.add(request)
                if refused is not None:
                    assert len(request.tokens) >= most
                    finish[request.rid] = "error"
        if step == 25:
            for number in aborted:
                for news in scheduler.abort(str(number)):
                    finish[news.rid] = "abort"
        scheduled = scheduler.next()
        plan = scheduled.plan
        assert scheduler.audit() == []
        if plan.work is Work.IDLE and pipeline.flight is None:
            assert scheduler.idle
            if step > 30:
                break
            continue
        assert plan.segments or pipeline.flight
        assert sum(len(segment.tokens) for segment in plan.prefilling) <= max(chunk, max_running)
        assert all(len(segment.tokens) <= plan.width for segment in plan.decoding)
        for owner in range(owners):
            assert sum(segment.owner == owner for segment in plan.decoding) <= plan.rows
        assert len(scheduler.running) <= max_running
        result = (
            pipeline.step(scheduled) if ahead else scheduler.commit(scheduled, model.run(scheduled))
        )
        for news in result:
            texts[news.rid] += news.tokens
            if news.finish:
                assert news.rid not in finish
                finish[news.rid] = news.finish
    assert scheduler.idle
    assert scheduler.audit() == []
    for cache in caches:
        assert cache.used_tokens == 0
        cache.flush()
        assert cache.available == page_count
        assert cache.idle_tokens == 0
    assert scheduler.audit() == []
    for _, request in arriving:
        expected = text_after(request, most)
        if finish[request.rid] in ("stop", "length"):
            assert texts[request.rid] == expected
        elif finish[request.rid] == "abort":
            assert texts[request.rid] == expected[: len(texts[request.rid])]


def run(scheduler: Scheduler, model: Model, most: int = 1000) -> tuple[list[Plan], list[Tokens]]:
    """Run steps until nothing is left; return plans and news."""
    plans: list[Plan] = []
    news: list[Tokens] = []
    while not scheduler.idle and len(plans) < most:
        scheduled = scheduler.next()
        plans.append(scheduled.plan)
        news += scheduler.commit(scheduled, model.run(scheduled))
    return plans, news


def test_thousands_of_requests_leave_the_books_in_order() -> None:
    numbers = Random(7)
    cache = make_cache(32, 4)
    scheduler = make_scheduler(Limits(VOCABULARY, 120, 8, 24, (1, 2, 4, 8), 2), cache)
    model = Model(4)
    beginnings = [[numbers.randrange(VOCABULARY) for _ in range(40)] for _ in range(6)]
    left = {str(number) for number in range(3000)}
    for rid in sorted(left, key=int):
        beginning = numbers.choice(beginnings)[: numbers.randrange(1, 40)]
        tokens = [*beginning, *(numbers.randrange(VOCABULARY) for _ in range(numbers.randrange(9)))]
        priority = numbers.randrange(3)
        scheduler.add(Generate(rid, tokens, numbers.randrange(1, 30), priority=priority))
        if numbers.random() < 0.2:
            ended = scheduler.abort(str(int(rid) - numbers.randrange(12)))
            left -= {news.rid for news in ended}
        for _ in range(numbers.randrange(5)):
            scheduled = scheduler.next()
            news = scheduler.commit(scheduled, model.run(scheduled))
            left -= {item.rid for item in news if item.finish}
        if int(rid) % 50 == 0:
            assert scheduler.audit() == []
    left -= {item.rid for item in run(scheduler, model, 100_000)[1] if item.finish}
    assert left == set()
    assert scheduler.counters.preemptions > 0
    assert scheduler.counters.cached_tokens > 0
    assert scheduler.audit() == []
    assert cache.used_tokens == 0


def test_prompts_are_computed_beside_the_sequences_that_decode() -> None:
    scheduler = make_scheduler(Limits(VOCABULARY, 100, 4, 4, (), 0), make_cache(50, 4))
    scheduler.add(Generate("a", [1], 5))
    scheduler.add(Generate("b", [1] * 8, 2))
    plans, _ = run(scheduler, Model(4))
    assert [plan.work.name for plan in plans] == ["MIXED"] * 3 + ["DECODE"] * 2
    assert [[len(s.tokens) for s in plan.prefilling] for plan in plans[:3]] == [[3], [3], [2]]
    assert [len(plan.decoding) for plan in plans] == [1, 1, 1, 2, 1]


def test_a_prompt_that_was_there_before_is_not_computed_again() -> None:
    scheduler = make_scheduler(Limits(VOCABULARY, 100, 4, 64, (), 0), make_cache(50, 4))
    model = Model(4)
    prompt = [1, 2, 3, 4, 5, 6, 0, 1, 2]
    scheduler.add(Generate("first", prompt, 6))
    first = run(scheduler, model)[1]
    before = model.computed
    scheduler.add(Generate("again", prompt, 6))
    again = run(scheduler, model)[1]
    assert [n.tokens for n in again] == [n.tokens for n in first]
    assert (first[0].cached_tokens, again[0].cached_tokens) == (0, 8)
    assert model.computed == before + (len(prompt) - 8) + 5
    answer = [token for item in first for token in item.tokens]
    scheduler.add(Generate("next turn", [*prompt, *answer, 3], 1))
    assert run(scheduler, model)[1][0].cached_tokens == 12


def test_requests_that_come_together_share_what_the_first_has_computed() -> None:
    cache = make_cache(50, 4)
    scheduler = make_scheduler(Limits(VOCABULARY, 100, 4, 12, (), 0), cache)
    model = Model(4)
    for name in "ab":
        scheduler.add(Generate(name, [1, 2, 3, 4, 5, 6, 0, 1, 2], 40))
    run(scheduler, model, 3)
    tables = [list(sequence.pages) for sequence in scheduler.running]
    assert tables[0][:2] == tables[1][:2]
    assert set(tables[0][2:]).isdisjoint(tables[1][2:])
    assert cache.used_tokens == 4 * len({*tables[0], *tables[1]})


def test_without_sharing_every_prompt_is_computed() -> None:
    scheduler = make_scheduler(Limits(VOCABULARY, 100, 4, 64, (), 0), make_cache(9, 4, share=False))
    for name in ("a", "b"):
        scheduler.add(Generate(name, [1] * 12, 2))
    _, news = run(scheduler, Model(4))
    assert scheduler.counters.cached_tokens == 0
    assert {item.cached_tokens for item in news} == {0}


def test_a_failed_sequence_leaves_nothing_behind() -> None:
    cache = make_cache(50, 4)
    scheduler = make_scheduler(Limits(VOCABULARY, 100, 4, 64, (), 0), cache)
    scheduler.add(Generate("a", [1] * 12, 2))
    news = scheduler.commit(scheduler.next(), [Choice([], error="not finite")])
    assert [(item.finish, item.error) for item in news] == [("error", "not finite")]
    assert cache.available == 50
    assert cache.idle_tokens == 0


def test_the_highest_priority_runs_first_and_is_put_back_last() -> None:
    limits = Limits(VOCABULARY, 100, 2, 64, (), 0)
    scheduler = make_scheduler(limits, make_cache(50, 4))
    for name, priority in (("low", -1), ("first", 0), ("second", 0), ("high", 5)):
        scheduler.add(Generate(name, [1, 2], 1, priority=priority))
    _, news = run(scheduler, Model(4))
    assert [item.rid for item in news if item.finish] == ["high", "first", "second", "low"]

    scheduler = make_scheduler(limits, make_cache(8, 4, share=False))
    model = Model(4)
    scheduler.add(Generate("low", [1, 2], 25, priority=-1))
    run(scheduler, model, 1)
    scheduler.add(Generate("high", [1, 2], 25))
    _, news = run(scheduler, model)
    assert scheduler.counters.preemptions == 1
    assert [item.rid for item in news if item.finish] == ["high", "low"]


def test_news_says_once_how_long_a_request_waited() -> None:
    now = 100.0
    limits = Limits(VOCABULARY, 100, 1, 64, (), 0)
    caches = [make_cache(50, 4)]
    scheduler = Scheduler(limits, caches, lambda r, n: Sequence(r, n, Random(0)), lambda: now)
    scheduler.add(Generate("a", [1], 2))
    scheduler.add(Generate("b", [1], 2))
    model = Model(4)
    waited: dict[str, list[float | None]] = {"a": [], "b": []}
    while not scheduler.idle:
        scheduled = scheduler.next()
        for item in scheduler.commit(scheduled, model.run(scheduled)):
            waited[item.rid].append(item.queued)
        now += 1.0
    assert waited == {"a": [0.0, None], "b": [2.0, None]}


def test_drafts_are_as_wide_as_the_longest_and_end_where_they_do_not_pay() -> None:
    scheduler = make_scheduler(Limits(VOCABULARY, 200, 4, 64, (), 4), make_cache(90, 4))
    scheduler.add(Generate("a", [1, 2, 3, 1, 2, 3], 150))
    sequence = scheduler.waiting[0]
    widths = []
    while not scheduler.idle:
        scheduled = scheduler.next()
        if scheduled.plan.work is Work.DECODE:
            plan = scheduled.plan
            widths.append(plan.width)
            assert plan.width == max(len(segment.tokens) for segment in plan.segments)
            scheduler.drafter.pace.learn(1, plan.width, 0.001 * plan.width)
        scheduler.commit(scheduled, [Choice([following(sequence.tokens)])])
    assert widths[0] > 1
    assert widths.count(1) > 100
    assert scheduler.drafter.accepted == 0
    assert scheduler.drafter.drafted == sum(width - 1 for width in widths)


def test_a_plan_travels_whole() -> None:
    scheduler = make_scheduler(Limits(VOCABULARY, 100, 4, 64, (), 0), make_cache(50, 4))
    scheduler.add(Generate("a", [1, 2, 3], 20))
    plan = scheduler.next(draining=True).plan
    assert decode_plan(encode_plan(plan)) == plan
    assert decode_plan(encode_plan(Plan(Work.STOP))).work is Work.STOP
