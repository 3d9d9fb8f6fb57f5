"""Plans for sequences whose tokens are known beforehand, and the reference's answers to them."""

from __future__ import annotations

import random
from array import array
from collections.abc import Sequence

import torch

from panel.server.plan import Plan, Segment, Work
from tests.server.checkpoints import Checkpoint

PAGE = 16

TEXTS = [
    [random.Random(number).randrange(512) for _ in range(length)]
    for number, length in enumerate((9, 24, 47, 130))
]
"""The last one is longer than the chunks of `steps`."""


def steps(
    texts: Sequence[list[int]] = TEXTS, chunk: int = 64, owners: Sequence[int] | None = None
) -> list[Plan]:
    """Return plans that take texts through prefill in chunks, decode and verify.

    Each text's last five tokens are left for decoding: two steps of one token, then three tokens at
    once. The last plan decodes all texts but the first and prefills that one once more.
    """
    owners = owners or [0] * len(texts)
    pages = _pages(texts, owners)

    def segment(number: int, begin: int, end: int, logits: bool = True) -> Segment:
        table = pages[number][: -(-end // PAGE)]
        tokens = texts[number][begin:end]
        return Segment(tokens, begin, table.tobytes(), logits, owners[number])

    plans = []
    for number, text in enumerate(texts):
        size = len(text) - 5
        for begin in range(0, size, chunk):
            end = min(begin + chunk, size)
            plans.append(Plan(Work.PREFILL, [segment(number, begin, end, end == size)]))

    def decode(back: int, width: int, numbers: Sequence[int]) -> list[Segment]:
        ends = [len(texts[number]) - back for number in numbers]
        return [segment(n, end, end + width) for n, end in zip(numbers, ends, strict=True)]

    every = range(len(texts))
    rows = max(owners.count(owner) for owner in owners) + 1
    plans.append(Plan(Work.DECODE, decode(5, 1, every), rows=rows))
    plans.append(Plan(Work.DECODE, decode(4, 1, every), rows=rows))
    plans.append(Plan(Work.DECODE, decode(3, 3, every), rows=rows, width=4))
    mixed = [*decode(3, 1, every[1:]), segment(0, 0, len(texts[0]))]
    plans.append(Plan(Work.MIXED, mixed, rows=rows, decodes=len(texts) - 1))
    return plans


def expected(reference: Checkpoint, texts: Sequence[list[int]] = TEXTS) -> list[torch.Tensor]:
    """Return the logits that `steps` asks for, by plan, for any chunk that fits one prefill."""
    every = [reference.logits(text) for text in texts]
    rows = [logits[len(logits) - 6].unsqueeze(0) for logits in every]
    rows += [torch.stack([logits[len(logits) - back] for logits in every]) for back in (5, 4)]
    rows.append(torch.cat([logits[-3:] for logits in every]))
    mixed = [logits[len(logits) - 3] for logits in every[1:]]
    rows.append(torch.stack([*mixed, every[0][-1]]))
    return rows


def _pages(texts: Sequence[list[int]], owners: Sequence[int]) -> list[array[int]]:
    """Give each text pages of its own, scattered, from the pages of its owner."""
    taken = dict.fromkeys(owners, 0)
    tables = []
    for text, owner in zip(texts, owners, strict=True):
        count = -(-len(text) // PAGE)
        taken[owner] += count
        table = list(range(taken[owner] - count + 1, taken[owner] + 1))
        tables.append(array("i", reversed(table)))
    return tables
