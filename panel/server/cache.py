"""The KV cache as sequences see it: pages of their own, and pages shared with who began alike."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable

from panel.server.pages import PageAllocator
from panel.server.prefix import PrefixTree
from panel.server.sequence import Sequence


class Cache:
    """Gives pages to sequences and remembers the full ones for those that begin alike.

    A sequence's first `node.depth` pages belong to the tree, the others to the sequence. Pages in
    the tree are full and are never written again.
    """

    def __init__(self, pages: PageAllocator, *, share: bool, owner: int = 0) -> None:
        """`owner` is the rank that keeps these pages under data-parallel attention."""
        self.owner = owner
        self._pages = pages
        self._share = share
        self._tree = PrefixTree(pages.page_size)

    @property
    def capacity(self) -> int:
        """Tokens that all pages hold."""
        return self._pages.count * self._pages.page_size

    @property
    def available(self) -> int:
        """Pages that can be had without taking one from a sequence."""
        return self._pages.free + self._tree.idle

    @property
    def used_tokens(self) -> int:
        """Tokens in pages of sequences."""
        return self.capacity - self.available * self._pages.page_size

    @property
    def idle_tokens(self) -> int:
        """Tokens remembered in pages that no sequence holds."""
        return self._tree.idle * self._pages.page_size

    def open(self, sequence: Sequence, reserve: int) -> bool:
        """Give a sequence pages for all of its tokens, remembered ones where it begins alike.

        At least one token is left to compute: its logits are wanted. False, and nothing done,
        where fewer than `reserve` pages would stay available.
        """
        # What is remembered has no logits any more.
        finds = self._share and not sequence.scoring
        node = self._tree.find(sequence.tokens[:-1]) if finds else self._tree.root
        self._tree.hold(node)
        needed = self._pages.needed(len(sequence.tokens)) - node.depth
        if needed + reserve > self.available:
            self._tree.drop(node)
            return False
        sequence.node = node
        sequence.pages.extend(each.page for each in reversed(list(node.path())))
        sequence.computed = node.depth * self._pages.page_size
        return self.grow(sequence, len(sequence.tokens))

    def grow(self, sequence: Sequence, tokens: int) -> bool:
        """Extend a sequence's pages to hold `tokens`; False, and nothing done, where pages lack."""
        missing = self._pages.needed(tokens) - len(sequence.pages)
        if missing <= 0:
            return True
        if missing > self.available:
            return False
        for _ in range(missing):
            sequence.pages.append(self._pages.take() if self._pages.free else self._tree.evict())
        return True

    def remember(self, sequence: Sequence) -> None:
        """Share the pages that a sequence has filled.

        Where the tree has a page with the same tokens already, the sequence goes on with that one.
        """
        if not self._share or sequence.node is None:
            return
        size = self._pages.page_size
        for index in range(sequence.node.depth, sequence.settled // size):
            block = tuple(sequence.tokens[index * size : (index + 1) * size])
            page = sequence.pages[index]
            sequence.node = self._tree.extend(sequence.node, block, page)
            if sequence.node.page != page:
                self._pages.give(page)
                sequence.pages[index] = sequence.node.page

    def close(self, sequence: Sequence) -> None:
        """Take all pages of a sequence back; what it shared stays remembered."""
        if sequence.node is None:
            return
        for page in reversed(sequence.pages[sequence.node.depth :]):
            self._pages.give(page)
        self._tree.drop(sequence.node)
        sequence.node = None
        del sequence.pages[:]
        sequence.computed = 0

    def flush(self) -> int:
        """Forget every page that no sequence holds; return their tokens."""
        tokens = self.idle_tokens
        while self._tree.idle:
            self._pages.give(self._tree.evict())
        return tokens

    def audit(self, sequences: Iterable[Sequence]) -> list[str]:
        """Return what is wrong with the books, given all sequences that have pages here."""
        owners = Counter(self._pages.unowned())
        users: Counter[int] = Counter()
        for sequence in sequences:
            assert sequence.node is not None
            owners.update(sequence.pages[sequence.node.depth :])
            users.update(each.page for each in sequence.node.path())
        wrong = []
        for node in self._tree.pages():
            owners[node.page] += 1
            if node.users != users[node.page]:
                wrong.append(f"page {node.page} counts {node.users} users, not {users[node.page]}")
        for page in range(1, self._pages.count + 1):
            if owners[page] != 1:
                wrong.append(f"page {page} has {owners[page]} owners")
        return wrong
