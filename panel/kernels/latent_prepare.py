"""What lies between the down-projection and the attention over latents, in one launch.

Per token: the latent is normalised and the key's rope part rotated, and both go to the token's slot
of the paged cache; the queries' rope parts are rotated; the queries' other parts meet the keys'
up-projection ("absorbed": `nope @ key_up[head]`), so that they compare with latents directly. Bytes
moved: those of `key_up`, heads * nope * latent * 2 in bf16 (2 MB for 16 heads of 128 and latents of
512), once for each 16 rows or more. Source: DeepSeek-AI, "DeepSeek-V2" (2024), section 2.1.
"""

from __future__ import annotations

import torch
import triton
import triton.language as tl

from panel.kernels.norm import rms_norm_reference
from panel.kernels.overlap import LINE_BYTES, await_inputs, launch_options, prefetch
from panel.kernels.skinny import Norm

_COLUMNS = 64
"""Latent columns of one program: 16 heads of 512 give 128 programs, one a multiprocessor."""


def latent_prepare_reference(
    query: torch.Tensor,
    entry: torch.Tensor,
    rotation: torch.Tensor,
    positions: torch.Tensor,
    norm: Norm,
    slots: torch.Tensor,
    cache: torch.Tensor,
    key_up: torch.Tensor | None,
) -> torch.Tensor:
    """Write the entries to `cache`, [slots, latent + rope], and return the absorbed queries.

    Shapes: query [rows, heads, nope + rope], or [rows, heads, latent + rope] where `key_up` is None
    as it is in the query's weights; entry [rows, latent + rope]; rotation [positions, rope], the
    cosine and sine of each pair; positions and slots int64 [rows]; key_up [heads, nope, latent].
    Result: [rows, heads, latent + rope] in float32.
    """
    latent = norm[0].shape[0]
    turns = rotation[positions].unsqueeze(1)
    wide = entry.float()
    key = _rotated(wide[:, None, latent:], turns)[:, 0]
    whole = torch.cat((rms_norm_reference(wide[:, :latent], *norm), key), dim=1)
    cache[slots] = whole.to(cache.dtype)
    inner = query.shape[2] - rotation.shape[1]
    nope, rope = query[:, :, :inner].float(), _rotated(query[:, :, inner:].float(), turns)
    if key_up is not None:
        nope = torch.einsum("rhn,hnl->rhl", nope, key_up.float())
    return torch.cat((nope, rope), dim=2)


def _rotated(x: torch.Tensor, turns: torch.Tensor) -> torch.Tensor:
    cosine, sine = turns[..., ::2], turns[..., 1::2]
    even, odd = x[..., ::2], x[..., 1::2]
    return torch.stack((even * cosine - odd * sine, even * sine + odd * cosine), dim=-1).flatten(-2)


def latent_prepare(
    query: torch.Tensor,
    entry: torch.Tensor,
    rotation: torch.Tensor,
    positions: torch.Tensor,
    norm: Norm,
    slots: torch.Tensor,
    cache: torch.Tensor,
    key_up: torch.Tensor | None,
    out: torch.Tensor | None = None,
) -> torch.Tensor:
    """Do what `latent_prepare_reference` does, for any number of rows.

    `query`, `entry` and `cache` may be strided but for their last dimension; `rotation` is float32
    and contiguous. Without `key_up` the queries are rotated in place and returned; otherwise they
    go to `out`. Rows of padding share a slot: what it holds afterwards is one of them or a mixture.
    """
    rows, heads, width = query.shape
    latent, rope = norm[0].shape[0], rotation.shape[1]
    if key_up is None:
        out = query
    elif out is None:
        out = torch.empty((rows, heads, latent + rope), dtype=query.dtype, device=query.device)
    block = min(64, max(16, triton.next_power_of_2(rows)))
    columns = min(_COLUMNS, triton.next_power_of_2(latent))
    absorb = query if key_up is None else key_up
    grid = (triton.cdiv(latent, columns), heads + 1, triton.cdiv(rows, block))
    _prepare[grid](
        query,
        entry,
        rotation,
        positions,
        *norm,
        slots,
        cache,
        absorb,
        out,
        rows,
        width - rope,
        latent,
        *query.stride()[:2],
        entry.stride(0),
        cache.stride(0),
        *absorb.stride()[:2],
        *out.stride()[:2],
        ROPE=rope,
        HALF=triton.next_power_of_2(rope // 2),
        ROWS=block,
        INNER=max(16, triton.next_power_of_2(width - rope)),
        LATENT=triton.next_power_of_2(latent),
        COLUMNS=columns,
        LINE=LINE_BYTES // query.element_size(),
        ABSORB=key_up is not None,
        num_warps=4,
        **launch_options(query.device),
    )
    return out


@triton.jit  # type: ignore[untyped-decorator]
def _rotate(  # type: ignore[no-untyped-def]
    source,
    target,
    turns,
    inside,
    ROPE: tl.constexpr,  # noqa: N803
    HALF: tl.constexpr,  # noqa: N803
):
    """Rotate the pairs of rows of pointers, [rows, 1]; `inside` [rows, 1]."""
    pair = 2 * tl.arange(0, HALF)[None, :]
    inside = inside & (pair < ROPE)
    cosine = tl.load(turns + pair, mask=inside, other=0.0)
    sine = tl.load(turns + pair + 1, mask=inside, other=0.0)
    even = tl.load(source + pair, mask=inside, other=0.0).to(tl.float32)
    odd = tl.load(source + pair + 1, mask=inside, other=0.0).to(tl.float32)
    kind = target.dtype.element_ty
    tl.store(target + pair, (even * cosine - odd * sine).to(kind), mask=inside)
    tl.store(target + pair + 1, (even * sine + odd * cosine).to(kind), mask=inside)


@triton.jit  # type: ignore[untyped-decorator]
def _prepare(  # type: ignore[no-untyped-def]
    query,
    entry,
    rotation,
    positions,
    gain,
    floor,
    slots,
    cache,
    key_up,
    out,
    rows,
    inner,
    latent,
    query_row,
    query_head,
    entry_row,
    cache_row,
    up_head,
    up_row,
    out_row,
    out_head,
    ROPE: tl.constexpr,  # noqa: N803
    HALF: tl.constexpr,  # noqa: N803
    ROWS: tl.constexpr,  # noqa: N803
    INNER: tl.constexpr,  # noqa: N803
    LATENT: tl.constexpr,  # noqa: N803
    COLUMNS: tl.constexpr,  # noqa: N803
    LINE: tl.constexpr,  # noqa: N803
    ABSORB: tl.constexpr,  # noqa: N803
    OVERLAP: tl.constexpr,  # noqa: N803
):
    block, head = tl.program_id(0), tl.program_id(1).to(tl.int64)
    first = tl.program_id(2) * ROWS
    if head == tl.num_programs(1) - 1:
        await_inputs(OVERLAP)
        # Each program of this last "head" takes every so many rows.
        last = tl.minimum(first + ROWS, rows)
        for mine in range(first + block, last, tl.num_programs(0)):
            turns = rotation + tl.load(positions + mine) * ROPE
            source = entry + tl.cast(mine, tl.int64) * entry_row
            target = cache + tl.load(slots + mine) * cache_row
            _keep(source, target, turns, gain, floor, latent, ROPE, HALF, LATENT)
    else:
        row = first + tl.arange(0, ROWS)
        real = row < rows
        at = query + row[:, None].to(tl.int64) * query_row + head * query_head
        to = out + row[:, None].to(tl.int64) * out_row + head * out_head
        column = block * COLUMNS + tl.arange(0, COLUMNS)
        step = tl.arange(0, INNER)
        if ABSORB:
            up = key_up + head * up_head + step.to(tl.int64) * up_row
            for line in tl.static_range(0, COLUMNS, LINE):
                some = tl.where(step < inner, up, key_up + step * 0)
                prefetch(some + block * COLUMNS + line, OVERLAP)
            await_inputs(OVERLAP)
            known = (step[:, None] < inner) & (column[None, :] < latent)
            weights = tl.load(up[:, None] + column[None, :], mask=known, other=0.0)
            known = real[:, None] & (step[None, :] < inner)
            nope = tl.load(at + step[None, :], mask=known, other=0.0)
            absorbed = tl.dot(nope, weights, input_precision="ieee").to(out.dtype.element_ty)
            known = real[:, None] & (column[None, :] < latent)
            tl.store(to + column[None, :], absorbed, mask=known)
            to += latent
        else:
            await_inputs(OVERLAP)
            to += inner
        if block == 0:
            place = tl.load(positions + row, mask=real, other=0)
            turn = rotation + place[:, None] * ROPE
            _rotate(at + inner, to, turn, real[:, None], ROPE, HALF)


@triton.jit  # type: ignore[untyped-decorator]
def _keep(  # type: ignore[no-untyped-def]
    source,
    target,
    turns,
    gain,
    floor,
    latent,
    ROPE: tl.constexpr,  # noqa: N803
    HALF: tl.constexpr,  # noqa: N803
    LATENT: tl.constexpr,  # noqa: N803
):
    """Write one token's entry."""
    column = tl.arange(0, LATENT)
    inside = column < latent
    least = tl.load(floor).to(tl.float32)
    factor = tl.load(gain + column, mask=inside, other=0.0).to(tl.float32)
    wide = tl.load(source + column, mask=inside, other=0.0).to(tl.float32)
    scale = tl.rsqrt(tl.sum(wide * wide, axis=0) + least * least)
    tl.store(target + column, (wide * scale * factor).to(target.dtype.element_ty), mask=inside)
    _rotate(source + latent, target + latent, turns, True, ROPE, HALF)
