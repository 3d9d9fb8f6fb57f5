"""Pages of the KV cache: who owns which."""

from __future__ import annotations


class PageAllocator:
    """Hands out pages 1 .. `count`; page 0 is where padding writes."""

    def __init__(self, count: int, page_size: int) -> None:
        self.count = count
        self.page_size = page_size
        self._free = list(range(count, 0, -1))

    @property
    def free(self) -> int:
        """Pages that nobody owns."""
        return len(self._free)

    def needed(self, tokens: int) -> int:
        """Return how many pages hold `tokens` tokens."""
        return -(-tokens // self.page_size)

    def take(self) -> int:
        """Return a page that nobody owned; `IndexError` without one."""
        return self._free.pop()

    def give(self, page: int) -> None:
        """Take a page back from its owner."""
        self._free.append(page)

    def unowned(self) -> tuple[int, ...]:
        """Return the pages that nobody owns."""
        return tuple(self._free)
