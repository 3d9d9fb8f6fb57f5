"""Pages and the prefix tree: any order of moves keeps the books."""

from __future__ import annotations

from array import array
from random import Random

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from panel.server.cache import Cache
from panel.server.messages import Generate
from panel.server.pages import PageAllocator
from panel.server.prefix import PrefixTree
from panel.server.sequence import Sequence

PAGES = 12
texts = st.lists(st.integers(0, 1), min_size=1, max_size=24)


def made(tokens: list[int]) -> Sequence:
    return Sequence(Generate("x", tokens, 10), 100, Random(0))


def test_an_allocator_hands_out_each_page_once_and_never_page_0() -> None:
    pages = PageAllocator(5, 16)
    taken = [pages.take() for _ in range(5)]
    assert sorted(taken) == [1, 2, 3, 4, 5]
    with pytest.raises(IndexError):
        pages.take()
    pages.give(taken[2])
    assert pages.take() == taken[2]
    assert [pages.needed(tokens) for tokens in (0, 1, 16, 17)] == [0, 1, 1, 2]


@given(st.lists(texts, max_size=8), texts, st.integers(1, 4))
def test_a_tree_finds_the_longest_beginning_in_whole_pages(
    known: list[list[int]], wanted: list[int], size: int
) -> None:
    tree = PrefixTree(size)
    page = 0
    for tokens in known:
        node = tree.root
        for begin in range(0, len(tokens) - size + 1, size):
            page += 1
            node = tree.extend(node, tuple(tokens[begin : begin + size]), page)
    longest = 0
    for tokens in known:
        same = 0
        while same < min(len(tokens), len(wanted)) and tokens[same] == wanted[same]:
            same += 1
        longest = max(longest, same // size)
    assert tree.find(wanted).depth == longest


def test_the_page_idle_longest_goes_first_and_ends_go_before_beginnings() -> None:
    tree = PrefixTree(1)
    trunk = tree.extend(tree.root, (1,), 1)
    left = tree.extend(trunk, (2,), 2)
    tree.hold(trunk)
    right = tree.extend(trunk, (3,), 3)
    assert tree.idle == 0
    with pytest.raises(KeyError):
        tree.evict()
    tree.drop(right)
    assert tree.idle == 1
    tree.drop(left)
    assert [tree.evict() for _ in range(3)] == [3, 2, 1]
    assert tree.find([1, 2]) is tree.root


class Moves(RuleBasedStateMachine):
    """Sequences come, grow, share and go, in any order."""

    @initialize(size=st.integers(1, 4), share=st.booleans())
    def start(self, size: int, share: bool) -> None:
        self.size = size
        self.cache = Cache(PageAllocator(PAGES, size), share=share)
        self.open: list[Sequence] = []
        self.content: dict[int, tuple[int, ...]] = {}

    @rule(tokens=texts, reserve=st.integers(0, 2))
    def come(self, tokens: list[int], reserve: int) -> None:
        sequence = made(tokens)
        before = self.cache.available
        if self.cache.open(sequence, reserve):
            assert self.cache.available >= reserve
            assert len(sequence.pages) * self.size >= len(tokens)
            assert sequence.computed < len(tokens)
            for index in range(sequence.computed // self.size):
                expected = tuple(tokens[: (index + 1) * self.size])
                assert self.content[sequence.pages[index]] == expected
            self.open.append(sequence)
        else:
            assert self.cache.available == before
            assert sequence.pages == array("i")

    @precondition(lambda self: self.open)
    @rule(data=st.data(), tokens=st.lists(st.integers(0, 1), min_size=1, max_size=6))
    def compute(self, data: st.DataObject, tokens: list[int]) -> None:
        sequence = data.draw(st.sampled_from(self.open))
        before = list(sequence.pages)
        if not self.cache.grow(sequence, len(sequence.tokens) + len(tokens)):
            assert list(sequence.pages) == before
            return
        sequence.computed = len(sequence.tokens)
        sequence.tokens += tokens
        for index in range(sequence.computed // self.size):
            filled = tuple(sequence.tokens[: (index + 1) * self.size])
            self.content[sequence.pages[index]] = filled
        if data.draw(st.booleans()):
            self.cache.remember(sequence)

    @precondition(lambda self: self.open)
    @rule(data=st.data())
    def go(self, data: st.DataObject) -> None:
        sequence = data.draw(st.sampled_from(self.open))
        self.open.remove(sequence)
        self.cache.close(sequence)
        assert sequence.pages == array("i")

    @rule()
    def flush(self) -> None:
        idle = self.cache.idle_tokens
        assert self.cache.flush() == idle
        assert self.cache.idle_tokens == 0

    @invariant()
    def books_are_right(self) -> None:
        assert self.cache.audit(self.open) == []
        used = {page for sequence in self.open for page in sequence.pages}
        assert self.cache.used_tokens == len(used) * self.size


TestMoves = Moves.TestCase
TestMoves.settings = settings(max_examples=60, stateful_step_count=30, deadline=None)


def test_an_audit_names_the_page_that_is_lost_or_has_two_owners() -> None:
    pages = PageAllocator(3, 4)
    cache = Cache(pages, share=True)
    sequence = made([1] * 5)
    assert cache.open(sequence, 0)
    assert cache.audit([sequence]) == []
    lost = pages.take()
    assert cache.audit([sequence]) == [f"page {lost} has 0 owners"]
    sequence.pages.append(sequence.pages[0])
    pages.give(lost)
    assert cache.audit([sequence]) == [f"page {sequence.pages[0]} has 2 owners"]
