"""What lies between the projection and the attention over keys and values, in one launch.

A program does one head of one token: queries are rotated where they are, keys are rotated into the
token's slot of the paged cache, values are copied there. It is bound by the launch.
"""

from __future__ import annotations

import torch
import triton
import triton.language as tl


def grouped_prepare_reference(
    projected: torch.Tensor,
    turns: torch.Tensor,
    positions: torch.Tensor,
    slots: torch.Tensor,
    cache: torch.Tensor,
) -> torch.Tensor:
    """Write the entries to `cache`, [slots, 2 * groups * width], and return the queries.

    Shapes: projected [rows, heads + 2 * groups, width], the heads of queries, keys and values;
    turns float32 [positions, width], the cosine and sine of each pair (x0, x1), (x2, x3), ...;
    positions and slots int64 [rows]. Result: [rows, heads, width] in float32.
    """
    groups = cache.shape[1] // (2 * projected.shape[2])
    turning = projected.shape[1] - groups
    turn = turns[positions].unsqueeze(1)
    cosine, sine = turn[..., ::2], turn[..., 1::2]
    wide = projected[:, :turning].float()
    even, odd = wide[..., ::2], wide[..., 1::2]
    pairs = torch.stack((even * cosine - odd * sine, even * sine + odd * cosine), dim=-1)
    turned = pairs.flatten(-2)
    entries = torch.cat((turned[:, -groups:], projected[:, turning:].float()), dim=1)
    cache[slots] = entries.flatten(1).to(cache.dtype)
    return turned[:, :-groups]


def grouped_prepare(
    projected: torch.Tensor,
    turns: torch.Tensor,
    positions: torch.Tensor,
    slots: torch.Tensor,
    cache: torch.Tensor,
) -> torch.Tensor:
    """Do what `grouped_prepare_reference` does, the queries in place: a view of `projected`.

    `projected` and `turns` are contiguous. Rows of padding share a slot: what it holds afterwards
    is one of them or a mixture.
    """
    rows, every, width = projected.shape
    groups = cache.shape[1] // (2 * width)
    heads = every - 2 * groups
    _prepare_groups[(rows, every)](
        projected,
        turns,
        positions,
        slots,
        cache,
        heads,
        groups,
        width,
        cache.stride(0),
        HALF=triton.next_power_of_2(width // 2),
        num_warps=1,
    )
    return projected[:, :heads]


@triton.jit(do_not_specialize_on_alignment=["positions", "slots"])  # type: ignore[untyped-decorator]
def _prepare_groups(  # type: ignore[no-untyped-def]
    projected,
    turns,
    positions,
    slots,
    cache,
    heads,
    groups,
    width,
    cache_row,
    HALF: tl.constexpr,  # noqa: N803
):
    row, head = tl.program_id(0).to(tl.int64), tl.program_id(1)
    column = 2 * tl.arange(0, HALF)
    inside = column < width
    source = projected + (row * tl.num_programs(1) + head) * width + column
    even = tl.load(source, mask=inside, other=0.0).to(tl.float32)
    odd = tl.load(source + 1, mask=inside, other=0.0).to(tl.float32)
    turn = turns + tl.load(positions + row) * width + column
    turning = inside & (head < heads + groups)
    cosine = tl.load(turn, mask=turning, other=1.0)
    sine = tl.load(turn + 1, mask=turning, other=0.0)
    first = (even * cosine - odd * sine).to(cache.dtype.element_ty)
    second = (even * sine + odd * cosine).to(cache.dtype.element_ty)
    target = source
    if head >= heads:
        target = cache + tl.load(slots + row) * cache_row + (head - heads) * width + column
    tl.store(target, first, mask=inside)
    tl.store(target + 1, second, mask=inside)
