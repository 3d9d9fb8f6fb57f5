"""The input of the step that verifies drafts, from where a head has left them.

The host lays out the same (`lay_out`); so it need not where all drafts of all sequences are
verified. A program does one sequence. It is bound by the launch.
"""

from __future__ import annotations

from typing import NamedTuple

import torch
import triton
import triton.language as tl

from panel.kernels.draft_follow import Course
from panel.kernels.draft_places import Ring


class Verification(NamedTuple):
    """What a step of `width` tokens of each sequence reads, all contiguous."""

    tokens: torch.Tensor
    """int64 [sequences * width]"""
    positions: torch.Tensor
    """int64, alike"""
    slots: torch.Tensor
    """int64, alike"""
    real: torch.Tensor
    """bool, alike: False for padding."""
    lengths: torch.Tensor
    """Keys of each sequence, int32 [sequences]."""


def lay_out_verification(
    course: Course, drafts: torch.Tensor, table: torch.Tensor, ring: Ring, out: Verification
) -> None:
    """Fill `out` for the last token known of each sequence and its drafts.

    Shapes: drafts int64 [sequences or more, width - 1], contiguous; table int32 [sequences, pages].
    What lies beyond the pages of a sequence goes to page 0.
    """
    width, count = course.tokens.shape
    _lay_out_verification[(count,)](
        course.starts,
        course.sizes,
        course.held,
        course.tokens,
        drafts,
        table,
        *out,
        table.shape[1],
        PAGE=ring.page_size,
        CONTEXT=ring.context,
        WIDTH=width,
        BLOCK=triton.next_power_of_2(width),
        num_warps=1,
    )


@triton.jit  # type: ignore[untyped-decorator]
def _lay_out_verification(  # type: ignore[no-untyped-def]
    starts,
    sizes,
    held,
    known,
    drafts,
    table,
    tokens,
    positions,
    slots,
    real,
    lengths,
    columns,
    PAGE: tl.constexpr,  # noqa: N803
    CONTEXT: tl.constexpr,  # noqa: N803
    WIDTH: tl.constexpr,  # noqa: N803
    BLOCK: tl.constexpr,  # noqa: N803
):
    row = tl.program_id(0).to(tl.int64)
    start = tl.load(starts + row)
    place = tl.arange(0, BLOCK)
    inside = place < WIDTH
    drafted = tl.load(drafts + row * (WIDTH - 1) + place - 1, mask=inside & (place > 0), other=0)
    spot = row * WIDTH + place
    tl.store(tokens + spot, tl.where(place == 0, tl.load(known + row), drafted), mask=inside)
    position = start + place
    tl.store(positions + spot, tl.minimum(position, CONTEXT - 1), mask=inside)
    number = position // PAGE
    owned = inside & (number < tl.load(held + row))
    page = tl.load(table + row * columns + number, mask=owned, other=0).to(tl.int64)
    tl.store(slots + spot, page * PAGE + position % PAGE, mask=inside)
    tl.store(real + spot, tl.load(sizes + row) > 0, mask=inside)
    tl.store(lengths + row, (start + WIDTH).to(tl.int32))
