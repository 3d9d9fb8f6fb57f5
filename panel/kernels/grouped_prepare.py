"""What lies between the projection and the attention over keys and values, in one launch.

A program does some heads of one token: queries and keys are normalised where the model does that,
and rotated; queries stay where they are, keys and values go to the token's slot of the paged cache.
Bytes moved: those of the projection, in and out, so that a decode step is bound by the launch.
"""

from __future__ import annotations

import torch
import triton
import triton.language as tl

from panel.kernels.norm import Norm, rms_norm_reference

_HEADS = 8
"""Most heads of one program."""


def grouped_prepare_reference(
    projected: torch.Tensor,
    turns: torch.Tensor,
    positions: torch.Tensor,
    slots: torch.Tensor,
    cache: torch.Tensor,
    norms: tuple[Norm, Norm] | None = None,
) -> torch.Tensor:
    """Write the entries to `cache`, [slots, 2 * groups * width], and return the queries.

    Shapes: projected [rows, heads + 2 * groups, width], the heads of queries, keys and values;
    turns float32 [positions, width], the cosine and sine of each pair (x0, x1), (x2, x3), ...;
    positions and slots int64 [rows]; norms: of a query's head and of a key's. Result: [rows, heads,
    width] in float32.
    """
    groups = cache.shape[1] // (2 * projected.shape[2])
    turning = projected.shape[1] - groups
    turn = turns[positions].unsqueeze(1)
    cosine, sine = turn[..., ::2], turn[..., 1::2]
    wide = projected[:, :turning].float()
    if norms is not None:
        parts = zip(wide.split_with_sizes((turning - groups, groups), dim=1), norms, strict=True)
        wide = torch.cat([rms_norm_reference(part, *norm) for part, norm in parts], dim=1)
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
    norms: tuple[Norm, Norm] | None = None,
) -> torch.Tensor:
    """Do what `grouped_prepare_reference` does, the queries in place: a view of `projected`.

    `projected` and `turns` are contiguous. Rows of padding share a slot: what it holds afterwards
    is one of them or a mixture.
    """
    rows, every, width = projected.shape
    groups = cache.shape[1] // (2 * width)
    heads = every - 2 * groups
    of_query, of_key = norms or ((projected, projected), (projected, projected))
    some = min(_HEADS, triton.next_power_of_2(every))
    _prepare_groups[(rows, triton.cdiv(every, some))](
        projected,
        turns,
        positions,
        slots,
        cache,
        *of_query,
        *of_key,
        heads,
        groups,
        width,
        cache.stride(0),
        HEADS=some,
        HALF=triton.next_power_of_2(width // 2),
        NORMED=norms is not None,
        num_warps=4,
    )
    return projected[:, :heads]


@triton.jit(do_not_specialize_on_alignment=["positions", "slots"])  # type: ignore[untyped-decorator]
def _prepare_groups(  # type: ignore[no-untyped-def]
    projected,
    turns,
    positions,
    slots,
    cache,
    query_gain,
    query_floor,
    key_gain,
    key_floor,
    heads,
    groups,
    width,
    cache_row,
    HEADS: tl.constexpr,  # noqa: N803
    HALF: tl.constexpr,  # noqa: N803
    NORMED: tl.constexpr,  # noqa: N803
):
    row = tl.program_id(0).to(tl.int64)
    every = heads + 2 * groups
    head = tl.program_id(1) * HEADS + tl.arange(0, HEADS)[:, None]
    column = tl.arange(0, 2 * HALF)[None, :]
    pair = 2 * tl.arange(0, HALF)[None, :]
    asking, turning = head < heads, head < heads + groups
    inside = (head < every) & (column < width)
    source = projected + (row * every + head) * width + column
    wide = tl.load(source, mask=inside, other=0.0).to(tl.float32)
    if NORMED:
        of_query = tl.load(query_gain + column, mask=column < width, other=0.0).to(tl.float32)
        of_key = tl.load(key_gain + column, mask=column < width, other=0.0).to(tl.float32)
        least = tl.where(asking, tl.load(query_floor), tl.load(key_floor)).to(tl.float32)
        scale = tl.rsqrt(tl.sum(wide * wide, axis=1)[:, None] + least * least)
        wide = tl.where(turning, wide * scale * tl.where(asking, of_query, of_key), wide)
    turn = turns + tl.load(positions + row) * width + pair
    turned = turning & (pair < width)
    cosine = tl.load(turn, mask=turned, other=1.0)
    sine = tl.load(turn + 1, mask=turned, other=0.0)
    even, odd = tl.split(tl.reshape(wide, (HEADS, HALF, 2)))
    result = tl.interleave(even * cosine - odd * sine, even * sine + odd * cosine)
    result = result.to(cache.dtype.element_ty)
    tl.store(source, result, mask=inside & asking)
    entry = cache + tl.load(slots + row) * cache_row + (head - heads) * width + column
    tl.store(entry, result, mask=inside & (head >= heads))
