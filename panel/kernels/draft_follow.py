"""Which drafts were followed, and where each sequence goes on, without a look of the host.

A program does one sequence. It is bound by the launch.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

import torch
import triton
import triton.language as tl


class Course(NamedTuple):
    """Where the sequences of a cycle are, on the device; one row a sequence, padding included."""

    starts: torch.Tensor
    """Position of the last token known, int64 [rows]."""
    seats: torch.Tensor
    """int64 [rows]"""
    sizes: torch.Tensor
    """Tokens that are verified, drafts included; 0 for padding; int64 [rows]."""
    held: torch.Tensor
    """Pages that it has; int64 [rows]."""
    seen: torch.Tensor
    """Tokens that the head has to see, the last one known included; 0 for padding; int64 [rows]."""
    tokens: torch.Tensor
    """Those, the last one first; int64 [width, rows]."""


def follow_drafts_reference(
    sampled: torch.Tensor,
    drafts: torch.Tensor,
    course: Course,
    taken: Callable[[int, int], bool] | None = None,
) -> None:
    """Bring the course to behind the tokens that were sampled.

    Shapes: sampled int64 [rows, n], drafts int64 [rows, at least n - 1], of which each sequence has
    one less than `course.sizes`. Where acceptance is simulated, `taken` says of a seat and a
    position whether the draft there is taken.
    """
    for row in range(len(course.starts)):
        size, start, seat = (int(each[row]) for each in (course.sizes, course.starts, course.seats))
        course.tokens[:, row] = 0
        course.seen[row] = 0
        if not size:
            continue
        followed = 0
        while followed < size - 1 and (
            drafts[row, followed] == sampled[row, followed]
            if taken is None
            else taken(seat, start + 1 + followed)
        ):
            followed += 1
        course.tokens[0, row] = sampled[row, followed]
        course.tokens[1 : 1 + followed, row] = drafts[row, :followed].flip(0)
        course.seen[row] = 1 + followed
        course.starts[row] += 1 + followed


def follow_drafts(
    sampled: torch.Tensor, drafts: torch.Tensor, course: Course, rate: float | None = None
) -> None:
    """Do what `follow_drafts_reference` does; rows of `sampled` and `drafts` are contiguous.

    Acceptance is simulated at `rate`, where that is given, by the rule of `simulated.is_taken`.
    """
    width, rows = course.tokens.shape
    _follow_drafts[(rows,)](
        sampled,
        drafts,
        course.starts,
        course.seats,
        course.sizes,
        course.seen,
        course.tokens,
        sampled.stride(0),
        drafts.stride(0),
        0 if rate is None else round(rate * 2**24),
        SIMULATED=rate is not None,
        WIDTH=width,
        BLOCK=triton.next_power_of_2(width),
        num_warps=1,
    )


_SEATS: tl.constexpr = tl.constexpr(0x1E3779B1)
_MIX: tl.constexpr = tl.constexpr(0x045D9F3B)


@triton.jit(do_not_specialize=["sampled_row", "drafts_row", "limit"])  # type: ignore[untyped-decorator]
def _follow_drafts(  # type: ignore[no-untyped-def]
    sampled,
    drafts,
    starts,
    seats,
    sizes,
    seen,
    tokens,
    sampled_row,
    drafts_row,
    limit,
    SIMULATED: tl.constexpr,  # noqa: N803
    WIDTH: tl.constexpr,  # noqa: N803
    BLOCK: tl.constexpr,  # noqa: N803
):
    row, rows = tl.program_id(0), tl.num_programs(0)
    size, start = tl.load(sizes + row), tl.load(starts + row)
    place = tl.arange(0, BLOCK)
    drafted = place < size - 1
    guessed = drafts + row * drafts_row
    found = tl.load(sampled + row * sampled_row + place, mask=place < size, other=0)
    if SIMULATED:
        word = tl.load(seats + row).to(tl.uint32) * _SEATS + (start + 1 + place).to(tl.uint32)
        word = (word ^ (word >> 16)) * _MIX
        word = (word ^ (word >> 16)) * _MIX
        right = ((word ^ (word >> 16)) >> 8).to(tl.int32) < limit
    else:
        right = found == tl.load(guessed + place, mask=drafted, other=0)
    followed = tl.min(tl.where(drafted & right, BLOCK, place), axis=0)
    own = tl.sum(tl.where(place == followed, found, 0), axis=0)
    earlier = (place > 0) & (place <= followed)
    known = tl.load(guessed + (followed - place), mask=earlier, other=0)
    tl.store(tokens + place * rows + row, tl.where(place == 0, own, known), mask=place < WIDTH)
    further = tl.where(size > 0, followed + 1, 0)
    tl.store(seen + row, further.to(tl.int64))
    tl.store(starts + row, start + further)
