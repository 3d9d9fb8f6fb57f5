"""Where a cycle of a draft head reads and writes, from how far its sequences are.

Features are kept in one table: a row for each page, that of its last token, then a ring for each
seat (`Ring`). Both kernels are bound by the launch.
"""

from __future__ import annotations

from typing import NamedTuple

import torch
import triton
import triton.language as tl

from panel.kernels.draft_follow import Course


class Ring(NamedTuple):
    """The layout of the table of features, and the bounds of positions."""

    pages: int
    """Rows for pages; row 0 is nobody's."""
    recent: int
    """Rows for each seat."""
    page_size: int
    context: int
    """Positions that there are."""


class Rows(NamedTuple):
    """What the head's graph reads, for `width` tokens that it has to see at most.

    First the tokens to be seen, [width, sequences], then the drafts that it sees too, [width - 2,
    sequences]. Padding and what is unknown stand for position 0 of page 0, and drafts beyond the
    pages of a sequence lie in page 0.
    """

    positions: torch.Tensor
    """int64 [(2 * width - 2) * sequences]"""
    slots: torch.Tensor
    """int64, alike"""
    before: torch.Tensor
    """Rows of the features before the tokens to be seen, int64 [width * sequences]."""
    lengths: torch.Tensor
    """Keys when each draft is made, int32 [width - 1, sequences]."""

    @classmethod
    def of(cls, width: int, sequences: int, device: torch.device) -> Rows:
        """Return room for them."""
        every = torch.zeros(3, (2 * width - 2) * sequences, dtype=torch.int64, device=device)
        lengths = torch.zeros(width - 1, sequences, dtype=torch.int32, device=device)
        return cls(every[0], every[1], every[2, : width * sequences], lengths)


def draft_places_reference(course: Course, table: torch.Tensor, ring: Ring, rows: Rows) -> None:
    """Fill `rows`; `table` int32 [sequences, pages] has the pages of the sequences, and more."""
    width = len(course.tokens)
    age = torch.arange(width)[:, None]
    known = age < course.seen
    positions = torch.where(known, course.starts - age, 0)
    every = torch.cat((positions, course.starts + age[1:-1]))
    inside = every // ring.page_size < course.held
    slots = _pages(table, every, ring) * inside * ring.page_size + every % ring.page_size
    slots[:width][~known] = 0
    before = torch.where(known, _places(table, course.seats, positions - 1, ring), 0)
    rows.positions.copy_(every.clamp(max=ring.context - 1).ravel())
    rows.slots.copy_(slots.ravel())
    rows.before.copy_(before.ravel())
    rows.lengths.copy_(course.starts + 1 + age[:-1])


def keep_features_reference(
    found: torch.Tensor, course: Course, table: torch.Tensor, ring: Ring, features: torch.Tensor
) -> None:
    """Write the features of the tokens verified into the table of them.

    Shapes: found [sequences * n, hidden], features [rows, hidden].
    """
    count = len(course.starts)
    age = torch.arange(len(found) // count)
    positions = course.starts[None] + age[:, None]
    kept = _places(table, course.seats, positions, ring).t()
    real = age < course.sizes[:, None]
    features[kept[real]] = found.unflatten(0, (count, -1))[real]


def _pages(table: torch.Tensor, positions: torch.Tensor, ring: Ring) -> torch.Tensor:
    number = (positions // ring.page_size).clamp(0, table.shape[1] - 1)
    return table[torch.arange(len(table)), number].long()


def _places(
    table: torch.Tensor, seats: torch.Tensor, positions: torch.Tensor, ring: Ring
) -> torch.Tensor:
    waiting = ring.pages + seats * ring.recent + positions % ring.recent
    last = (positions + 1) % ring.page_size == 0
    return torch.where(last, _pages(table, positions, ring), waiting) * (positions >= 0)


def draft_places(course: Course, table: torch.Tensor, ring: Ring, rows: Rows) -> None:
    """Do what `draft_places_reference` does."""
    width, count = course.tokens.shape
    _draft_places[(count,)](
        course.starts,
        course.seats,
        course.seen,
        course.held,
        table,
        *rows,
        table.shape[1],
        ring.pages,
        RECENT=ring.recent,
        PAGE=ring.page_size,
        CONTEXT=ring.context,
        WIDTH=width,
        BLOCK=triton.next_power_of_2(2 * width - 2),
        num_warps=1,
    )


def keep_features(
    found: torch.Tensor, course: Course, table: torch.Tensor, ring: Ring, features: torch.Tensor
) -> None:
    """Do what `keep_features_reference` does; all of it is contiguous."""
    count, hidden = len(course.starts), found.shape[1]
    block = triton.next_power_of_2(hidden)
    _keep_features[(count, len(found) // count)](
        found,
        course.starts,
        course.seats,
        course.sizes,
        table,
        features,
        table.shape[1],
        ring.pages,
        hidden,
        RECENT=ring.recent,
        PAGE=ring.page_size,
        BLOCK=block,
        num_warps=min(8, max(1, block // 512)),
    )


@triton.jit  # type: ignore[untyped-decorator]
def _place(table, columns, pages, seat, position, RECENT: tl.constexpr, PAGE: tl.constexpr):  # type: ignore[no-untyped-def]  # noqa: N803
    """Return the row of the feature at a position; row 0 before the first."""
    number = tl.minimum(position // PAGE, columns - 1)
    last = (position >= 0) & ((position + 1) % PAGE == 0)
    page = tl.load(table + number, mask=last, other=0).to(tl.int64)
    row = tl.where(last, page, pages + seat * RECENT + position % RECENT)
    return tl.where(position >= 0, row, 0)


@triton.jit  # type: ignore[untyped-decorator]
def _draft_places(  # type: ignore[no-untyped-def]
    starts,
    seats,
    seen,
    held,
    table,
    positions,
    slots,
    before,
    lengths,
    columns,
    pages,
    RECENT: tl.constexpr,  # noqa: N803
    PAGE: tl.constexpr,  # noqa: N803
    CONTEXT: tl.constexpr,  # noqa: N803
    WIDTH: tl.constexpr,  # noqa: N803
    BLOCK: tl.constexpr,  # noqa: N803
):
    row, rows = tl.program_id(0), tl.num_programs(0)
    start, seat = tl.load(starts + row), tl.load(seats + row)
    table += row.to(tl.int64) * columns
    line = tl.arange(0, BLOCK)
    known = line < tl.load(seen + row)
    ahead = (line >= WIDTH) & (line < 2 * WIDTH - 2)
    position = tl.where(known, start - line, tl.where(ahead, start + line - WIDTH + 1, 0))
    number = position // PAGE
    inside = (known | ahead) & (number < tl.load(held + row))
    page = tl.load(table + number, mask=inside, other=0).to(tl.int64)
    slot = tl.where(known | ahead, page * PAGE + position % PAGE, 0)
    spot = line * rows + row
    tl.store(positions + spot, tl.minimum(position, CONTEXT - 1), mask=line < 2 * WIDTH - 2)
    tl.store(slots + spot, slot, mask=line < 2 * WIDTH - 2)
    place = _place(table, columns, pages, seat, position - 1, RECENT, PAGE)
    tl.store(before + spot, tl.where(known, place, 0), mask=line < WIDTH)
    tl.store(lengths + spot, (start + 1 + line).to(tl.int32), mask=line < WIDTH - 1)


@triton.jit  # type: ignore[untyped-decorator]
def _keep_features(  # type: ignore[no-untyped-def]
    found,
    starts,
    seats,
    sizes,
    table,
    features,
    columns,
    pages,
    hidden,
    RECENT: tl.constexpr,  # noqa: N803
    PAGE: tl.constexpr,  # noqa: N803
    BLOCK: tl.constexpr,  # noqa: N803
):
    row, age = tl.program_id(0).to(tl.int64), tl.program_id(1)
    if age < tl.load(sizes + row):
        position = tl.load(starts + row) + age
        place = _place(
            table + row * columns, columns, pages, tl.load(seats + row), position, RECENT, PAGE
        )
        column = tl.arange(0, BLOCK)
        source = found + (row * tl.num_programs(1) + age) * hidden
        read = tl.load(source + column, mask=column < hidden)
        tl.store(features + place * hidden + column, read, mask=column < hidden)
