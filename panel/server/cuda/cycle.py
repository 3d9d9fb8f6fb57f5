"""A cycle's input for the kernels of a draft head, laid out on the host."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from panel.server.cuda.layout import Arrays, Paper
from panel.server.draft.places import Places
from panel.server.plan import Plan


@dataclass(frozen=True, slots=True)
class Cycle:
    """What extend and drafts read, and where the features of the verified tokens go.

    Rows of `extend` come by age, the last token of each sequence first, then the one before it.
    """

    arrays: Arrays
    """`tokens` int64 [width * count]; `before` int64 alike, rows of the features before them;
    `positions`, `slots` int64 [(2 * width - 2) * count], of those tokens, then of the drafts that
    the head sees too; `lengths` int32 [width - 1, count], keys when each draft is made; `kept`
    int64 [count * width], where features of the verified tokens go, 0 for padding."""
    table: npt.NDArray[np.int32]
    """Pages of the sequences, [count, as many as the longest has]."""


def lay_out_cycle(
    plan: Plan, count: int, width: int, paper: Paper, places: Places, *, owned: list[int]
) -> Cycle:
    """Return the cycle of a plan's segments `owned`, padded to `count` sequences.

    With `width` tokens to verify there are `width - 1` drafts, and at most as many tokens that the
    head has missed. Whatever stands for padding goes to page 0, which belongs to nobody, or where a
    sequence's next tokens go.
    """
    segments = [plan.decoding[number] for number in owned]
    longest = max((segment.start for segment in segments), default=0) + width
    size = paper.page_size
    table = np.zeros((count, -(-longest // size)), np.int32)
    starts, seats = np.zeros(count, np.int64), np.zeros(count, np.int64)
    verified, seen = np.zeros(count, np.int64), np.zeros(count, np.int64)
    tokens = np.zeros((width, count), np.int64)
    for row, segment in enumerate(segments):
        fresh = segment.fresh
        starts[row], seats[row] = segment.start, segment.seat
        verified[row], seen[row] = len(segment.tokens), 1 + len(fresh)
        tokens[0, row] = segment.tokens[0]
        tokens[1 : 1 + len(fresh), row] = fresh[::-1]
        pages = np.frombuffer(segment.pages, np.int32)[: table.shape[1]]
        table[row, : len(pages)] = pages
    age = np.arange(width)[:, None]
    known = age < seen
    positions = np.where(known, starts - age, 0)
    before = np.where(known, places.among(table, seats, positions - 1), 0)
    ahead = starts + age[1:-1]
    every = np.concatenate((positions, ahead))
    slots = table[np.arange(count), every // size].astype(np.int64) * size + every % size
    slots[:width][~known] = 0
    kept = np.where(age < verified, places.among(table, seats, starts + age), 0)
    arrays = {
        "tokens": tokens.ravel(),
        "positions": np.minimum(every, paper.context - 1).ravel(),
        "slots": slots.ravel(),
        "before": before.ravel(),
        "lengths": (starts + 1 + age[:-1]).astype(np.int32),
        "kept": np.ascontiguousarray(kept.T).ravel(),
    }
    return Cycle(arrays, table)
