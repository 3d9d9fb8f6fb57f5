"""The tensors of one step, built alike on every rank from the plan."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
import torch

from panel.server.plan import Plan, Segment, Work

Ints = npt.NDArray[np.int64]


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
    """Where each token's latent goes in the cache, int64 [rows]; 0 for padding."""
    spans: tuple[Span, ...]
    logit_rows: torch.Tensor | None
    """Rows whose logits are wanted, int64; None: all."""


def build_batch(plan: Plan, page_size: int, device: torch.device) -> Batch:
    """Return the tensors of a prefill or decode plan.

    Page 0 belongs to nobody: padding writes there.
    """
    if plan.work is Work.DECODE:
        return _decode(plan, page_size, device)
    parts = [_uniform([segment], 1, len(segment.tokens), page_size) for segment in plan.segments]
    sizes = [len(segment.tokens) for segment in plan.segments]
    begins = np.cumsum([0, *sizes])
    spans = tuple(
        _span(int(begin), 1, size, part, device)
        for begin, size, part in zip(begins, sizes, parts, strict=False)
    )
    wanted = [int(end) - 1 for end, s in zip(begins[1:], plan.segments, strict=True) if s.logits]
    return Batch(
        _joined([part.tokens for part in parts], device),
        _joined([part.positions for part in parts], device),
        _joined([part.slots for part in parts], device),
        spans,
        torch.tensor(wanted, dtype=torch.int64, device=device),
    )


def _joined(pieces: list[Ints], device: torch.device) -> torch.Tensor:
    return torch.from_numpy(np.concatenate(pieces)).to(device)


def _decode(plan: Plan, page_size: int, device: torch.device) -> Batch:
    part = _uniform(plan.segments, plan.rows, plan.width, page_size)
    return Batch(
        torch.from_numpy(part.tokens).to(device),
        torch.from_numpy(part.positions).to(device),
        torch.from_numpy(part.slots).to(device),
        (_span(0, plan.rows, plan.width, part, device),),
        None,
    )


@dataclass(frozen=True, slots=True)
class _Part:
    tokens: Ints
    positions: Ints
    slots: Ints
    keys: Ints
    mask: npt.NDArray[np.float32] | None


def _uniform(segments: list[Segment], rows: int, width: int, page_size: int) -> _Part:
    """Lay `segments` out as `rows` sequences of `width` tokens, padded at both ends."""
    tokens = np.zeros((rows, width), np.int64)
    sizes = np.zeros((rows, 1), np.int64)
    starts = np.zeros((rows, 1), np.int64)
    most = max(len(segment.pages) // 4 for segment in segments)
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
    if rows * width > 1:
        seen = reach <= positions[:, :, None]
        mask = np.where(seen, np.float32(0), np.float32(-np.inf))[:, :, None, :]
    return _Part(tokens.ravel(), positions.ravel(), slots.ravel(), keys.ravel(), mask)


def _span(begin: int, count: int, width: int, part: _Part, device: torch.device) -> Span:
    mask = None if part.mask is None else torch.from_numpy(part.mask).to(device)
    return Span(begin, count, width, torch.from_numpy(part.keys).to(device), mask)
