"""Prompts that begin alike: a tree whose nodes are full pages of the KV cache."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field

Block = tuple[int, ...]
"""The tokens of one page."""


@dataclass(slots=True, eq=False)
class Node:
    """A page whose content follows from the tokens on the way to it."""

    page: int
    depth: int
    """Pages from the root to here, this one included."""
    parent: Node | None
    block: Block
    users: int = 0
    """Sequences that hold this page or one below it."""
    children: dict[Block, Node] = field(default_factory=dict)

    def path(self) -> Iterator[Node]:
        """Yield this node and those above it, without the root."""
        node = self
        while node.parent is not None:
            yield node
            node = node.parent


class PrefixTree:
    """Which pages hold the beginning of a text; those that nobody holds are given up oldest first.

    Who holds a node holds all above it. A path that is dropped becomes idle from its end, so that
    among the idle nodes a child always comes before its parent.
    """

    def __init__(self, page_size: int) -> None:
        self.root = Node(page=0, depth=0, parent=None, block=())
        self._page_size = page_size
        self._idle: dict[Node, None] = {}

    @property
    def idle(self) -> int:
        """Pages that nobody holds."""
        return len(self._idle)

    def find(self, tokens: Sequence[int]) -> Node:
        """Return the end of the longest path of whole pages with which `tokens` begins."""
        node = self.root
        size = self._page_size
        for begin in range(0, len(tokens) - size + 1, size):
            child = node.children.get(tuple(tokens[begin : begin + size]))
            if child is None:
                break
            node = child
        return node

    def hold(self, node: Node) -> None:
        """Keep the pages of a path while a sequence uses them."""
        for each in node.path():
            each.users += 1
            self._idle.pop(each, None)

    def drop(self, node: Node) -> None:
        """Undo one `hold`."""
        for each in node.path():
            each.users -= 1
            if each.users == 0:
                self._idle[each] = None

    def extend(self, node: Node, block: Block, page: int) -> Node:
        """Return the child of a held node for `block`, held too; a new one gets `page`."""
        child = node.children.get(block)
        if child is None:
            child = Node(page, node.depth + 1, node, block)
            node.children[block] = child
        child.users += 1
        self._idle.pop(child, None)
        return child

    def evict(self) -> int:
        """Forget the page that has been idle longest and return it; `KeyError` without one."""
        try:
            node = next(iter(self._idle))
        except StopIteration:
            raise KeyError("no page is idle") from None
        del self._idle[node]
        assert node.parent is not None
        del node.parent.children[node.block]
        return node.page

    def pages(self) -> Iterator[Node]:
        """Yield every node but the root."""
        waiting = list(self.root.children.values())
        while waiting:
            node = waiting.pop()
            yield node
            waiting += node.children.values()
