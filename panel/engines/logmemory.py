"""What SGLang and vLLM say in their logs of the memory that they took. Pure.

Figures are bytes by `weights`, `kv_cache` and `graphs`, and a number of `kv_tokens`.
"""

from __future__ import annotations

import re
from collections.abc import Iterator

_GIB = 1 << 30
# Both say GB or GiB for 2^30 bytes.
_AMOUNT = r"(?P<amount>[\d.]+) Gi?B"
_FIRST = (
    ("weights", rf"Load weight end\..*mem usage={_AMOUNT}"),
    ("weights", rf"Model loading took {_AMOUNT}"),
    ("kv_cache", rf"KV Cache is allocated\..*KV size: {_AMOUNT}"),
    ("kv_cache", rf"KV Cache is allocated\..*K size: {_AMOUNT}, V size: (?P<more>[\d.]+) GB"),
    ("kv_cache", rf"Available KV cache memory: {_AMOUNT}"),
    ("kv_tokens", r"max_total_num_tokens=(?P<amount>\d+)"),
    ("kv_tokens", r"GPU KV cache size: (?P<amount>[\d,]+) tokens"),
)
"""Said again of a draft model: the first counts."""
_EACH = (
    ("graphs", rf"Capture .*graph end\..*mem usage={_AMOUNT}"),
    ("graphs", rf"Graph capturing finished in .* took {_AMOUNT}"),
)
"""Said once for each kind of graph."""
_LINES = tuple((part, re.compile(text)) for part, text in _FIRST + _EACH)
_MARKS = ("GB", "GiB", "okens")


class LogMemory:
    """The figures of each rank; what no rank says for itself is rank 0's."""

    def __init__(self) -> None:
        self.ranks: dict[int, dict[str, int]] = {}

    def see(self, text: str, rank: int | None) -> None:
        """Take in a line without its prefix."""
        for part, amount in _amounts(text):
            known = self.ranks.setdefault(rank or 0, {})
            if part == "graphs":
                known[part] = known.get(part, 0) + amount
            else:
                known.setdefault(part, amount)


def _amounts(text: str) -> Iterator[tuple[str, int]]:
    if not any(mark in text for mark in _MARKS):
        return
    for part, pattern in _LINES:
        if match := pattern.search(text):
            if part == "kv_tokens":
                yield part, int(match["amount"].replace(",", ""))
            else:
                groups = match.groupdict()
                yield part, round((float(match["amount"]) + float(groups.get("more") or 0)) * _GIB)
            return
