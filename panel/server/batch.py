"""The tensors of one step, built alike on every rank from the plan."""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TypeVar

import numpy as np
import numpy.typing as npt
import torch

from panel.server.plan import Plan, Segment, Work

Ints = npt.NDArray[np.int64]
Bools = npt.NDArray[np.bool_]
Array = TypeVar("Array", Ints, Bools)


@dataclass(frozen=True, slots=True)
class Span:
    """Rows of a batch whose attention is computed together: `count` sequences of `width` tokens."""

    begin: int
    count: int
    width: int
    keys: torch.Tensor
    """Cache slots of the keys of all sequences one after the other, int64 [count * length]."""
    mask: torch.Tensor | None
    """Added to the scores: 0 or -inf, [count, width, 1, length]; None where every key counts."""


@dataclass(frozen=True, slots=True)
class Batch:
    """One step's input."""

    tokens: torch.Tensor
    """int64 [rows]"""
    positions: torch.Tensor
    """int64 [rows]"""
    slots: torch.Tensor
    """Where each token goes in the cache, int64 [rows]; 0 for padding."""
    real: torch.Tensor | None
    """False for padding, bool [rows]; None where no row is padding."""
    spans: tuple[Span, ...]
    logit_rows: torch.Tensor | None
    """Rows whose logits are wanted, int64; None: all."""
    logit_targets: torch.Tensor | None
    """Where those go among the logits of all ranks, int64; None: the first rows."""


@dataclass(frozen=True, slots=True)
class _Part:
    tokens: Ints
    positions: Ints
    slots: Ints
    real: Bools
    keys: Ints
    mask: npt.NDArray[np.float32] | None


def build_batch(
    plan: Plan,
    page_size: int,
    device: torch.device,
    owner: int | None = None,
    *,
    drafting: bool = False,
) -> Batch:
    """Return the tensors of a plan with segments; with `owner` only those of its own segments.

    An owner without segments gets one row of padding, so that it has something to take through
    every layer. Page 0 belongs to nobody: padding writes there. With `drafting` it is for a draft
    head, whose cache has nothing to see at position 0.
    """

    def mine(segments: Sequence[Segment]) -> list[tuple[int, Segment]]:
        return [(n, s) for n, s in enumerate(segments) if owner is None or s.owner == owner]

    decoding, prefilling = mine(plan.decoding), mine(plan.prefilling)
    shapes = [([segment], 1, len(segment.tokens)) for _, segment in prefilling]
    if plan.rows:
        shapes.insert(0, ([segment for _, segment in decoding], plan.rows, plan.width))
    shapes = shapes or [([], 1, 1)]
    parts = [
        _uniform(segments, count, width, page_size, drafting) for segments, count, width in shapes
    ]
    begins = [0, *itertools.accumulate(count * width for _, count, width in shapes)]
    spans = tuple(
        _span(begin, count, width, part, device)
        for begin, (_, count, width), part in zip(begins, shapes, parts, strict=False)
    )
    real = _joined([part.real for part in parts])
    if plan.work is Work.DECODE and owner is None:
        rows = targets = None
    else:
        rows, targets = _logits(plan, decoding, prefilling, begins)
    return Batch(
        _tensor(_joined([part.tokens for part in parts]), device),
        _tensor(_joined([part.positions for part in parts]), device),
        _tensor(_joined([part.slots for part in parts]), device),
        None if real.all() else _tensor(real, device),
        spans,
        None if rows is None else torch.tensor(rows, dtype=torch.int64, device=device),
        None if targets is None else torch.tensor(targets, dtype=torch.int64, device=device),
    )


def _logits(
    plan: Plan,
    decoding: list[tuple[int, Segment]],
    prefilling: list[tuple[int, Segment]],
    begins: list[int],
) -> tuple[list[int], list[int]]:
    """Return the rows of the wanted logits and their places among those of all ranks."""
    width = plan.width
    steps = range(width)
    rows = [local * width + step for local in range(len(decoding)) for step in steps]
    targets = [number * width + step for number, _ in decoding for step in steps]
    places = plan.prefill_begins
    ends = begins[2:] if plan.rows else begins[1:]
    for (number, segment), end in zip(prefilling, ends, strict=False):
        count = segment.prefill_rows
        rows += range(end - count, end)
        targets += range(places[number], places[number] + count)
    return rows, targets


def _uniform(
    segments: list[Segment], rows: int, width: int, page_size: int, drafting: bool
) -> _Part:
    """Lay `segments` out as `rows` sequences of `width` tokens, padded at both ends."""
    tokens = np.zeros((rows, width), np.int64)
    sizes = np.zeros((rows, 1), np.int64)
    starts = np.zeros((rows, 1), np.int64)
    most = max((len(segment.pages) // 4 for segment in segments), default=1)
    pages = np.zeros((rows, most), np.int64)
    for row, segment in enumerate(segments):
        size = len(segment.tokens)
        tokens[row, :size] = segment.tokens
        sizes[row] = size
        starts[row] = segment.start
        table = np.frombuffer(segment.pages, np.int32)
        pages[row, : len(table)] = table
    steps = np.arange(width)
    real = steps < sizes
    positions = np.where(real, starts + steps, 0)
    every = (pages[:, :, None] * page_size + np.arange(page_size)).reshape(rows, -1)
    slots = np.where(real, np.take_along_axis(every, positions, 1), 0)
    ends = np.maximum(starts + sizes, 1)
    length = int(ends.max())
    reach = np.arange(length)
    # Masked keys are the sequence's own first: whatever an abandoned slot holds, a NaN even,
    # must not reach another sequence (0 * NaN is NaN).
    keys = np.where(reach < ends, every[:, :length], every[:, :1])
    mask = None
    if rows * width > 1 or drafting:
        seen = reach <= positions[:, :, None]
        if drafting:
            seen &= (reach > 0) | (positions[:, :, None] == 0)
        mask = np.where(seen, np.float32(0), np.float32(-np.inf))[:, :, None, :]
    return _Part(tokens.ravel(), positions.ravel(), slots.ravel(), real.ravel(), keys.ravel(), mask)


def _span(begin: int, count: int, width: int, part: _Part, device: torch.device) -> Span:
    mask = None if part.mask is None else torch.from_numpy(part.mask).to(device)
    return Span(begin, count, width, _tensor(part.keys, device), mask)


def _joined(pieces: list[Array]) -> Array:
    return pieces[0] if len(pieces) == 1 else np.concatenate(pieces)


def _tensor(array: Ints | Bools, device: torch.device) -> torch.Tensor:
    return torch.from_numpy(array).to(device)
