"""A step's input for the kernels, laid out on the host."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
import torch

from panel.server.plan import Plan, Segment

Arrays = Mapping[str, npt.NDArray[np.generic]]


@dataclass(frozen=True, slots=True)
class Chunk:
    """Rows of a step that prefill one sequence."""

    size: int
    start: int
    """Tokens of the sequence that are in the cache already."""


@dataclass(frozen=True, slots=True)
class Layout:
    """Everything that a step reads but the weights and the cache."""

    count: int
    """Sequences that decode, padding included; their rows come first."""
    width: int
    """Tokens of each of them."""
    chunks: tuple[Chunk, ...]
    arrays: Arrays
    """`tokens`, `positions`, `slots` int64 [rows]; `real` bool [rows]; `lengths` int32 [count]:
    keys of the decoding sequences. With chunks also `keys` int64: the cache slots of their
    sequences, one after the other; `query_ends` and `key_ends` int32 [chunks + 1]: the sums of
    tokens and of keys so far, from 0."""
    table: npt.NDArray[np.int32]
    """Pages of the decoding sequences, [count, as many as the longest has]."""
    wanted: npt.NDArray[np.int64]
    """Rows whose logits are wanted."""
    targets: torch.Tensor | None
    """Where those go among the logits of all ranks, int64 on the host; None: the first rows."""

    @property
    def rows(self) -> int:
        """Rows of the step, padding included."""
        return len(self.arrays["tokens"])


@dataclass(frozen=True, slots=True)
class Paper:
    """The bounds of every layout."""

    page_size: int
    context: int
    """Most tokens of a sequence."""
    width: int
    """Most tokens of a decoding sequence in one step."""

    @property
    def pages(self) -> int:
        """Columns of the page table: room for padding beyond the longest sequence too."""
        return -(-(self.context + self.width) // self.page_size)


def lay_out(plan: Plan, paper: Paper, width: int, owner: int | None = None) -> Layout:
    """Return the layout of a plan with segments, with `width` tokens of each decoding sequence.

    With `owner` that of its own segments; one without any gets a row of padding, so that it has
    something to take through every layer.

    Padding behind a sequence's tokens is computed as if it were its next tokens: it writes where
    those will go, or into page 0, which belongs to nobody, and so does padding without a sequence.
    """
    decoding, prefilling = _owned(plan.decoding, owner), _owned(plan.prefilling, owner)
    count, page_size = plan.rows, paper.page_size
    if not count and not prefilling:
        count, width = 1, 1
    arrays, table = _decoding(decoding, count, width, paper)
    chunks = []
    pieces = [arrays]
    begin = count * width
    ends: list[int] = []
    keys = []
    for segment in prefilling:
        size = len(segment.tokens)
        chunks.append(Chunk(size, segment.start))
        slots = _slots(segment, page_size)
        keys.append(slots)
        pieces.append(
            {
                "tokens": np.array(segment.tokens, np.int64),
                "positions": np.arange(segment.start, segment.start + size),
                "slots": slots[segment.start :],
                "real": np.ones(size, np.bool_),
            }
        )
        begin += size
        ends += range(begin - segment.prefill_rows, begin)
    for name in ("tokens", "positions", "slots", "real"):
        arrays[name] = np.concatenate([piece[name] for piece in pieces])
    if chunks:
        arrays["keys"] = np.concatenate(keys)
        arrays["query_ends"] = np.cumsum([0, *(each.size for each in chunks)], dtype=np.int32)
        arrays["key_ends"] = np.cumsum([0, *(len(each) for each in keys)], dtype=np.int32)
    firsts = np.arange(len(decoding))[:, None] * width
    decoded = (firsts + np.arange(plan.width)).ravel()
    wanted = np.concatenate((decoded, np.array(ends, np.int64)))
    targets = None if owner is None else torch.tensor(plan.rows_of(owner), dtype=torch.int64)
    return Layout(count, width, tuple(chunks), arrays, table, wanted, targets)


def _owned(segments: Sequence[Segment], owner: int | None) -> list[Segment]:
    """Return the segments that a rank computes."""
    return [segment for segment in segments if owner in (None, segment.owner)]


def _decoding(
    segments: list[Segment], count: int, width: int, paper: Paper
) -> tuple[dict[str, npt.NDArray[np.generic]], npt.NDArray[np.int32]]:
    """Return the arrays of the decoding sequences, and the table of their pages."""
    longest = max((segment.start for segment in segments), default=0) + width
    tokens = np.zeros((count, width), np.int64)
    starts = np.zeros((count, 1), np.int64)
    sizes = np.zeros((count, 1), np.int64)
    table = np.zeros((count, -(-longest // paper.page_size)), np.int32)
    for row, segment in enumerate(segments):
        size = len(segment.tokens)
        tokens[row, :size] = segment.tokens
        starts[row] = segment.start
        sizes[row] = size
        pages = np.frombuffer(segment.pages, np.int32)[: table.shape[1]]
        table[row, : len(pages)] = pages
    real = np.arange(width) < sizes
    places = starts + np.arange(width)
    page = table[np.arange(count)[:, None], places // paper.page_size]
    slots = page.astype(np.int64) * paper.page_size + places % paper.page_size
    arrays: dict[str, npt.NDArray[np.generic]] = {
        "tokens": tokens.ravel(),
        "positions": np.minimum(places, paper.context - 1).ravel(),
        "slots": slots.ravel(),
        "real": real.ravel(),
        "lengths": (starts.ravel() + width).astype(np.int32),
    }
    return arrays, table


def _slots(segment: Segment, page_size: int) -> npt.NDArray[np.int64]:
    """Return the cache slots of a sequence's tokens up to the last of this step."""
    table = np.frombuffer(segment.pages, np.int32).astype(np.int64)
    every = (table[:, None] * page_size + np.arange(page_size)).ravel()
    return every[: segment.start + len(segment.tokens)]
