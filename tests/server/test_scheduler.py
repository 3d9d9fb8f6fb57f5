"""The scheduler against a model that needs no weights: the next token is a function of the text."""

from __future__ import annotations

from array import array
from collections.abc import Sequence as Tokens
from random import Random

from hypothesis import given, settings
from hypothesis import strategies as st

from panel.server.messages import Generate
from panel.server.pages import PageAllocator
from panel.server.plan import Plan, Work, decode_plan, encode_plan
from panel.server.scheduler import Choice, Limits, Scheduled, Scheduler
from panel.server.sequence import Sequence
from panel.server.speculative import NgramIndex

VOCABULARY = 7


def following(tokens: Tokens[int]) -> int:
    return (sum(tokens[-3:]) * 5 + len(tokens) // 4) % VOCABULARY


def text_after(request: Generate, limit: int) -> list[int]:
    tokens = list(request.tokens)
    while len(tokens) < min(len(request.tokens) + request.max_new_tokens, limit):
        tokens.append(following(tokens))
        if tokens[-1] in request.stop_tokens:
            break
    return tokens[len(request.tokens) :]


class Cache:
    """What the model would find at each slot; checks that nobody writes over another."""

    def __init__(self, page_size: int) -> None:
        self.page_size = page_size
        self.slots: dict[int, int] = {}

    def run(self, scheduled: Scheduled) -> list[Choice]:
        plan = decode_plan(encode_plan(scheduled.plan))
        owners: dict[int, str] = {}
        choices = []
        for sequence, segment in zip(scheduled.sequences, plan.segments, strict=True):
            pages = array("i", segment.pages)
            for page in pages:
                assert page > 0
                assert owners.setdefault(page, sequence.rid) == sequence.rid

            def slot(position: int, pages: array[int] = pages) -> int:
                return pages[position // self.page_size] * self.page_size + (
                    position % self.page_size
                )

            for offset, token in enumerate(segment.tokens):
                self.slots[slot(segment.start + offset)] = token
            end = segment.start + len(segment.tokens)
            seen = [self.slots[slot(position)] for position in range(end)]
            if not segment.logits:
                continue
            if plan.work is Work.PREFILL:
                choices.append(Choice([following(seen)]))
                continue
            taken = []
            for offset in range(len(segment.tokens)):
                taken.append(following(seen[: segment.start + offset + 1]))
                if [*sequence.draft, None][offset] != taken[-1]:
                    break
            choices.append(Choice(taken))
        return choices


def make_scheduler(limits: Limits, pages: PageAllocator) -> Scheduler:
    def make(request: Generate, limit: int) -> Sequence:
        ngrams = NgramIndex(3, 1) if limits.draft_tokens else None
        return Sequence(request, limit, Random(0), ngrams)

    return Scheduler(limits, pages, make)


requests = st.lists(
    st.tuples(
        st.lists(st.integers(0, VOCABULARY - 1), min_size=1, max_size=30),
        st.integers(1, 30),
        st.lists(st.integers(0, VOCABULARY - 1), max_size=1),
        st.integers(0, 20),
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
)
def test_every_request_gets_its_own_text_whatever_else_runs(
    wanted: list[tuple[list[int], int, list[int], int]],
    page_size: int,
    page_count: int,
    max_running: int,
    chunk: int,
    draft_tokens: int,
    aborted: set[int],
) -> None:
    pages = PageAllocator(page_count, page_size)
    limits = Limits(VOCABULARY, 50, max_running, chunk, (1, 2, 4), draft_tokens)
    scheduler = make_scheduler(limits, pages)
    cache = Cache(page_size)
    most = min(50, page_count * page_size)
    arriving = [
        (at, Generate(str(n), tokens, count, temperature=0, stop_tokens=stop))
        for n, (tokens, count, stop, at) in enumerate(wanted)
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
        if plan.work is Work.IDLE:
            assert scheduler.idle
            if step > 30:
                break
            continue
        assert plan.segments
        if plan.work is Work.PREFILL:
            assert sum(len(segment.tokens) for segment in plan.segments) <= chunk
        else:
            assert len(plan.segments) <= plan.rows
            assert max(len(segment.tokens) for segment in plan.segments) <= plan.width
        assert len(scheduler.running) <= max_running
        for news in scheduler.commit(scheduled, cache.run(scheduled)):
            texts[news.rid] += news.tokens
            if news.finish:
                assert news.rid not in finish
                finish[news.rid] = news.finish
    assert scheduler.idle
    assert pages.free == page_count
    for _, request in arriving:
        expected = text_after(request, most)
        if finish[request.rid] in ("stop", "length"):
            assert texts[request.rid] == expected
        elif finish[request.rid] == "abort":
            assert texts[request.rid] == expected[: len(texts[request.rid])]


@given(st.lists(st.tuples(st.integers(0, 3), st.integers(0, 40))), st.integers(1, 7))
def test_no_page_has_two_owners(moves: list[tuple[int, int]], page_size: int) -> None:
    pages = PageAllocator(10, page_size)
    owned: list[array[int]] = [array("i") for _ in range(4)]
    for owner, tokens in moves:
        before = list(owned[owner])
        if tokens == 0:
            pages.release(owned[owner])
        elif pages.grow(owned[owner], tokens):
            assert len(owned[owner]) * page_size >= tokens
        else:
            assert list(owned[owner]) == before
        held = [page for one in owned for page in one]
        assert len(held) == len(set(held)) == 10 - pages.free
        assert all(1 <= page <= 10 for page in held)
        assert pages.used_tokens == len(held) * page_size


def test_prefill_and_decode_take_turns() -> None:
    scheduler = make_scheduler(Limits(VOCABULARY, 100, 4, 4, (), 0), PageAllocator(50, 4))
    cache = Cache(4)
    scheduler.add(Generate("a", [1], 20))
    scheduler.add(Generate("b", [1] * 16, 20))
    works = []
    for _ in range(7):
        scheduled = scheduler.next()
        works.append(scheduled.plan.work)
        scheduler.commit(scheduled, cache.run(scheduled))
    assert works == [Work.PREFILL, Work.DECODE] * 3 + [Work.PREFILL]


def test_a_plan_travels_whole() -> None:
    scheduler = make_scheduler(Limits(VOCABULARY, 100, 4, 64, (), 0), PageAllocator(50, 4))
    scheduler.add(Generate("a", [1, 2, 3], 20))
    plan = scheduler.next(draining=True).plan
    assert decode_plan(encode_plan(plan)) == plan
    assert decode_plan(encode_plan(Plan(Work.STOP))).work is Work.STOP
