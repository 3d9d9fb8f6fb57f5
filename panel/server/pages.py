"""Pages of the KV cache: who owns which, and how many there are."""

from __future__ import annotations

from array import array

from panel.server.config import ModelConfig

HOST_LIMIT = 1 << 30
"""Most bytes of KV cache of all CPU ranks together."""


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

    @property
    def used_tokens(self) -> int:
        """Tokens of cache in pages that somebody owns."""
        return (self.count - self.free) * self.page_size

    def missing(self, pages: array[int], tokens: int) -> int:
        """Pages that an owner of `pages` still needs for `tokens` tokens."""
        return max(0, -(-tokens // self.page_size) - len(pages))

    def grow(self, pages: array[int], tokens: int) -> bool:
        """Extend `pages` to hold `tokens` tokens; False, and nothing done, where pages lack."""
        missing = self.missing(pages, tokens)
        if missing > self.free:
            return False
        for _ in range(missing):
            pages.append(self._free.pop())
        return True

    def release(self, pages: array[int]) -> None:
        """Take all of `pages` back and empty it."""
        self._free.extend(reversed(pages))
        del pages[:]


def cache_tokens(config: ModelConfig, *, room: int, element_size: int, useful: int) -> int:
    """Return how many tokens of cache fit into `room` bytes of one rank, at most `useful`."""
    return min(room // (config.layers * config.latent_width * element_size), useful)
