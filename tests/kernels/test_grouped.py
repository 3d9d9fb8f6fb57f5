"""Attention over keys and values of grouped heads against plain torch, in Triton's interpreter."""

from __future__ import annotations

import pytest
import torch

from tests.kernels import interpreting  # noqa: F401

# isort: split
from panel.kernels.grouped_decode import grouped_decode, grouped_decode_reference, rule
from panel.kernels.grouped_prepare import grouped_prepare, grouped_prepare_reference
from panel.kernels.latent_decode import Division, Paging
from panel.kernels.norm import Norm
from panel.server.batch import Span
from panel.server.grouped import attend
from panel.server.norm import RMSNorm
from panel.server.rope import rotate_
from tests.kernels.test_latent import error, limit, paged


@pytest.mark.parametrize("dtype", [torch.float32, torch.float16])
@pytest.mark.parametrize("normed", [False, True])
@pytest.mark.parametrize(("heads", "groups", "width"), [(4, 4, 16), (6, 2, 24), (1, 1, 16)])
def test_prepare(dtype: torch.dtype, heads: int, groups: int, width: int, normed: bool) -> None:
    rows = 5
    projected = torch.randn(rows, heads + 2 * groups, width).to(dtype)
    angles = torch.rand(50, width // 2) * 6
    turns = torch.view_as_real(torch.polar(torch.ones_like(angles), angles)).flatten(1)
    positions, slots = torch.randperm(50)[:rows], torch.randperm(64)[:rows]
    norms = (norm_of(width, dtype), norm_of(width, dtype)) if normed else None
    caches = [torch.full((64, 2 * groups * width), 7.0).to(dtype) for _ in range(2)]
    wanted = grouped_prepare_reference(projected, turns, positions, slots, caches[0], norms)
    ours = grouped_prepare(projected.clone(), turns, positions, slots, caches[1], norms)
    assert error(ours, wanted) < limit(dtype)
    assert error(caches[1], caches[0]) < limit(dtype)
    assert caches[1].eq(7).all(dim=1).sum() == 64 - rows


def norm_of(width: int, dtype: torch.dtype) -> Norm:
    norm = RMSNorm.of(torch.rand(width).to(dtype), 1e-2)
    return norm.gain, norm.floor


def test_the_reference_does_what_the_engine_does() -> None:
    projected, angles = torch.randn(3, 8, 16), torch.rand(9, 8) * 6
    turns, positions = torch.polar(torch.ones_like(angles), angles), torch.tensor([3, 1, 4])
    cache, flat = torch.zeros(3, 2 * 2 * 16), torch.view_as_real(turns).flatten(1)
    norms = [RMSNorm.of(torch.rand(16), 1e-2) for _ in range(2)]
    of_query, of_key = ((norm.gain, norm.floor) for norm in norms)
    query = grouped_prepare_reference(
        projected, flat, positions, torch.arange(3), cache, (of_query, of_key)
    )
    for norm, part in zip(norms, projected[:, :6].split_with_sizes((4, 2), dim=1), strict=True):
        norm(part, out=part)
    rotate_(projected[:, :6], turns[positions].unsqueeze(1))
    torch.testing.assert_close(query, projected[:, :4])
    torch.testing.assert_close(cache, projected[:, 4:].flatten(1))


@pytest.mark.parametrize("dtype", [torch.float32, torch.float16])
@pytest.mark.parametrize(
    ("lengths", "tokens", "heads", "groups", "width", "first", "division"),
    [
        ([50], 1, 4, 4, 16, 0, Division(3, 16, 4, 2)),
        ([5, 70, 33], 1, 6, 2, 24, 1, Division(4, 16, 4, 2)),
        ([9, 40, 5], 5, 6, 3, 16, 1, Division(2, 16, 4, 2)),
        ([9, 20], 3, 8, 1, 16, 0, Division(1, 16, 4, 2)),
        # 40 rows share a cached head: several blocks of them.
        ([20, 12], 10, 8, 2, 16, 0, Division(2, 16, 4, 2)),
    ],
)
def test_decode(
    dtype: torch.dtype,
    lengths: list[int],
    tokens: int,
    heads: int,
    groups: int,
    width: int,
    first: int,
    division: Division,
) -> None:
    cache, paging = paged(lengths, 2 * groups * width, dtype)
    cache[paging.table[:, 0].long() * paging.page_size] *= float("nan") if first else 1
    query = (torch.randn(len(lengths) * tokens, heads, width) * width**-0.5).to(dtype)
    wanted = grouped_decode_reference(query, cache, groups, paging, first)
    ours = grouped_decode(query, cache, groups, paging, first, division=division)
    assert ours.dtype is dtype
    assert error(ours, wanted) < limit(dtype)
    again = grouped_decode(query, cache, groups, paging, first, division=division)
    assert torch.equal(ours, again)


def test_a_query_that_sees_no_key_gives_zeros() -> None:
    cache, paging = paged([1, 30], 2 * 2 * 16, torch.float32)
    query = torch.randn(2, 4, 16)
    for pieces in (1, 3):
        ours = grouped_decode(query, cache, 2, paging, 1, division=Division(pieces, 16, 4, 2))
        assert ours[0].eq(0).all()
        assert ours[1].ne(0).all()


def span_of(paging: Paging, tokens: int) -> Span:
    """Return the engine's own view of the same keys."""
    longest = int(paging.lengths.max())
    key = torch.arange(longest)
    pages = paging.table[:, key // paging.page_size].long()
    seen = paging.lengths[:, None].long() - tokens + 1 + torch.arange(tokens)
    mask = torch.where(key < seen[:, :, None], 0.0, float("-inf"))
    slots = pages * paging.page_size + key % paging.page_size
    return Span(0, len(paging.lengths), tokens, slots.ravel(), mask[:, :, None])


def test_the_reference_is_what_the_engine_computes() -> None:
    cache, paging = paged([6, 11], 2 * 2 * 16, torch.float32)
    query = torch.randn(6, 4, 16)
    wanted = attend(query, span_of(paging, 3), cache.nan_to_num(0.0), 2)
    torch.testing.assert_close(grouped_decode_reference(query, cache, 2, paging), wanted)


def test_the_rule_divides_small_batches_most() -> None:
    assert [rule(count, 16).pieces for count in (1, 4, 64)] == [16, 4, 1]
    assert [rule(1, 4, rows).pieces for rows in (8, 72)] == [64, 22]
    assert rule(1, 16).keys == 2 * rule(1, 16, size=4).keys
