"""What lies between the down-projection and the attention over latents, in one launch.

Per token: the latent is normalised and the key's rope part rotated, and both go to the token's slot
of the paged cache; the queries' rope parts are rotated; the queries' other parts meet the keys'
up-projection ("absorbed": `nope @ key_up[head]`), so that they compare with latents directly. A
program does one token, or one block of the absorbed queries. Bytes moved: those of `key_up`, heads
* nope * latent * 2 in bf16 (2 MB for 16 heads of 128 and latents of 512), once for each 16 rows or
more. Source: DeepSeek-AI, "DeepSeek-V2" (2024), section 2.1.
"""

from __future__ import annotations

import torch
import triton
import triton.language as tl

from panel.kernels.norm import Norm, rms_norm_reference

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
    counter: torch.Tensor | None = None,
) -> torch.Tensor:
    """Do what `latent_prepare_reference` does, for any number of rows.

    `query`, `entry` and `cache` may be strided but for their last dimension; `rotation` is float32
    and contiguous. Without `key_up` the queries are rotated in place and returned; otherwise they
    go to `out`. Rows of padding share a slot: what it holds afterwards is one of them or a mixture.
    `counter`, int32 [1], is set to 0 for `latent_together`.
    """
    rows, heads, width = query.shape
    latent, rope = norm[0].shape[0], rotation.shape[1]
    if key_up is None:
        out = query
    elif out is None:
        out = torch.empty((rows, heads, latent + rope), dtype=query.dtype, device=query.device)
    height = 16 if rows <= 16 else 64
    columns = min(_COLUMNS, triton.next_power_of_2(latent))
    absorb = query if key_up is None else key_up
    blocks = triton.cdiv(latent, columns)
    absorbing = 0 if key_up is None else blocks * heads * triton.cdiv(rows, height)
    _prepare[(rows + absorbing,)](
        query,
        entry,
        rotation,
        positions,
        *norm,
        slots,
        cache,
        absorb,
        out,
        counter,
        rows,
        heads,
        width - rope,
        latent,
        *query.stride()[:2],
        entry.stride(0),
        cache.stride(0),
        *absorb.stride()[:2],
        *out.stride()[:2],
        HEADS=min(16, triton.next_power_of_2(heads)),
        ROPE=rope,
        HALF=triton.next_power_of_2(rope // 2),
        ROWS=height,
        INNER=max(16, triton.next_power_of_2(width - rope)),
        LATENT=triton.next_power_of_2(latent),
        COLUMNS=columns,
        ABSORB=key_up is not None,
        num_warps=4,
    )
    return out


@triton.jit  # type: ignore[untyped-decorator]
def _rotate(  # type: ignore[no-untyped-def]
    source,
    target,
    inside,
    cosine,
    sine,
    ROPE: tl.constexpr,  # noqa: N803
    HALF: tl.constexpr,  # noqa: N803
):
    """Rotate the pairs of rows of pointers, [rows, 1]; `inside` [rows, 1]."""
    column = tl.arange(0, 2 * HALF)[None, :]
    inside = inside & (column < ROPE)
    values = tl.load(source + column, mask=inside, other=0.0).to(tl.float32)
    even, odd = tl.split(tl.reshape(values, (values.shape[0], HALF, 2)))
    turned = tl.interleave(even * cosine - odd * sine, even * sine + odd * cosine)
    tl.store(target + column, turned.to(target.dtype.element_ty), mask=inside)


@triton.jit(do_not_specialize=["rows"])  # type: ignore[untyped-decorator]
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
    counter,
    rows,
    heads,
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
    HEADS: tl.constexpr,  # noqa: N803
    ROPE: tl.constexpr,  # noqa: N803
    HALF: tl.constexpr,  # noqa: N803
    ROWS: tl.constexpr,  # noqa: N803
    INNER: tl.constexpr,  # noqa: N803
    LATENT: tl.constexpr,  # noqa: N803
    COLUMNS: tl.constexpr,  # noqa: N803
    ABSORB: tl.constexpr,  # noqa: N803
):
    number = tl.program_id(0)
    if number < rows:
        mine = number.to(tl.int64)
        if counter is not None:
            tl.store(counter, 0)
        # One token: its entry first, then the rope parts of its queries.
        pair = 2 * tl.arange(0, HALF)[None, :]
        turn = rotation + tl.load(positions + mine) * ROPE + pair
        cosine = tl.load(turn, mask=pair < ROPE, other=0.0)
        sine = tl.load(turn + 1, mask=pair < ROPE, other=0.0)
        source = entry + mine * entry_row
        target = cache + tl.load(slots + mine) * cache_row
        deep = tl.arange(0, LATENT)
        inside = deep < latent
        least = tl.load(floor).to(tl.float32)
        factor = tl.load(gain + deep, mask=inside, other=0.0).to(tl.float32)
        wide = tl.load(source + deep, mask=inside, other=0.0).to(tl.float32)
        scale = tl.rsqrt(tl.sum(wide * wide, axis=0) + least * least)
        tl.store(target + deep, (wide * scale * factor).to(cache.dtype.element_ty), mask=inside)
        alone = tl.zeros((1, 1), tl.int32)
        key, kept = source + latent + alone, target + latent + alone
        _rotate(key, kept, alone == 0, cosine, sine, ROPE, HALF)
        shift = latent if ABSORB else inner
        for first in range(0, heads, HEADS):
            head = first + tl.arange(0, HEADS)[:, None]
            plain = query + mine * query_row + head * query_head + inner
            turned = out + mine * out_row + head * out_head + shift
            _rotate(plain, turned, head < heads, cosine, sine, ROPE, HALF)
    elif ABSORB:
        rest = number - rows
        blocks = tl.cdiv(latent, COLUMNS)
        block, which = rest % blocks, (rest // blocks % heads).to(tl.int64)
        row = rest // (blocks * heads) * ROWS + tl.arange(0, ROWS)
        column = block * COLUMNS + tl.arange(0, COLUMNS)
        step = tl.arange(0, INNER)
        up = key_up + which * up_head + step[:, None].to(tl.int64) * up_row + column[None, :]
        known = (step[:, None] < inner) & (column[None, :] < latent)
        weights = tl.load(up, mask=known, other=0.0)
        at = query + row[:, None].to(tl.int64) * query_row + which * query_head + step[None, :]
        known = (row[:, None] < rows) & (step[None, :] < inner)
        absorbed = tl.dot(tl.load(at, mask=known, other=0.0), weights, input_precision="ieee")
        to = out + row[:, None].to(tl.int64) * out_row + which * out_head + column[None, :]
        known = (row[:, None] < rows) & (column[None, :] < latent)
        tl.store(to, absorbed.to(out.dtype.element_ty), mask=known)
