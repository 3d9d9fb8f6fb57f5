"""Attention over latents against plain torch, in Triton's interpreter."""

from __future__ import annotations

import pytest
import torch

from tests.kernels import interpreting  # noqa: F401

# isort: split
from panel.kernels.latent_decode import Division, Paging, latent_decode, latent_decode_reference
from panel.kernels.latent_prepare import latent_prepare, latent_prepare_reference
from panel.kernels.latent_together import latent_together
from panel.server.norm import RMSNorm
from panel.server.rope import rotate_

NOPE, ROPE, PAGE = 24, 8, 4


def error(ours: torch.Tensor, reference: torch.Tensor) -> float:
    return float((ours.float() - reference.float()).norm() / reference.float().norm())


def limit(dtype: torch.dtype) -> float:
    return 1e-5 if dtype is torch.float32 else 2e-3


@pytest.mark.parametrize("dtype", [torch.float32, torch.float16])
@pytest.mark.parametrize("latent", [32, 40])
@pytest.mark.parametrize("folded", [False, True])
@pytest.mark.parametrize("rows", [1, 18])
def test_prepare(dtype: torch.dtype, latent: int, folded: bool, rows: int) -> None:
    heads, width = 3, (latent if folded else NOPE) + ROPE
    projected = torch.randn(rows, heads * width + latent + ROPE).to(dtype)
    query = projected[:, : heads * width].unflatten(1, (heads, width))
    entry = projected[:, heads * width :]
    angles = torch.rand(50, ROPE // 2) * 6
    rotation = torch.view_as_real(torch.polar(torch.ones_like(angles), angles)).flatten(1)
    positions, slots = torch.randperm(50)[:rows], torch.randperm(64)[:rows]
    norm = (torch.rand(latent).to(dtype) * latent**0.5, torch.tensor(1e-3, dtype=dtype))
    key_up = None if folded else (torch.randn(heads, NOPE, latent) * NOPE**-0.5).to(dtype)
    caches = [torch.full((64, latent + ROPE), 7.0).to(dtype) for _ in range(2)]
    common = (rotation, positions, norm, slots)
    wanted = latent_prepare_reference(query, entry, *common, caches[0], key_up)
    ours = latent_prepare(query, entry, *common, caches[1], key_up)
    assert error(ours, wanted) < limit(dtype)
    assert error(caches[1], caches[0]) < limit(dtype)
    assert caches[1].eq(7).all(dim=1).sum() == 64 - rows


def test_the_reference_rotates_and_normalises_as_the_engine_does() -> None:
    entry, angles = torch.randn(5, 16 + ROPE), torch.rand(9, ROPE // 2) * 6
    turns = torch.polar(torch.ones_like(angles), angles)
    norm, positions = RMSNorm.of(torch.rand(16), 1e-6), torch.tensor([3, 1, 4, 1, 5])
    cache, query = torch.zeros(5, 16 + ROPE), torch.randn(5, 2, 16 + ROPE)
    result = latent_prepare_reference(
        query,
        entry,
        torch.view_as_real(turns).flatten(1),
        positions,
        (norm.gain, norm.floor),
        torch.arange(5),
        cache,
        None,
    )
    rotate_(query[:, :, 16:], turns[positions].unsqueeze(1))
    rotate_(entry[:, None, 16:], turns[positions].unsqueeze(1))
    norm(entry[:, :16], out=entry[:, :16])
    assert torch.allclose(result, query, atol=1e-5)
    assert torch.allclose(cache, entry, atol=1e-5)


def paged(lengths: list[int], width: int, dtype: torch.dtype) -> tuple[torch.Tensor, Paging]:
    """Return a cache in which only keys within the lengths are numbers, and its pages."""
    most = -(-max(lengths) // PAGE)
    pages = 1 + torch.randperm(len(lengths) * most).view(-1, most)
    table = torch.zeros(len(lengths), most + 2, dtype=torch.int32)
    table[:, :most] = pages
    cache = torch.full(((len(lengths) * most + 1) * PAGE, width), float("nan"), dtype=dtype)
    for row, length in enumerate(lengths):
        key = torch.arange(length)
        slots = table[row, key // PAGE].long() * PAGE + key % PAGE
        cache[slots] = torch.randn(length, width).to(dtype)
    return cache, Paging(table, torch.tensor(lengths, dtype=torch.int32), PAGE)


@pytest.mark.parametrize(
    ("dtype", "lengths", "width", "heads", "latent", "division", "up"),
    [
        (torch.float32, [50], 1, 3, 32, Division(3, 16, 4, 2), True),
        (torch.float16, [50], 1, 3, 32, Division(3, 16, 4, 2), False),
        (torch.float32, [5, 70, 33], 1, 2, 40, Division(4, 16, 4, 2), False),
        (torch.float16, [5, 70, 33], 1, 2, 40, Division(4, 16, 4, 2), True),
        (torch.float32, [5, 40, 33], 2, 2, 32, Division(2, 16, 4, 2), True),
        (torch.float16, [5, 40, 33], 2, 2, 32, Division(2, 16, 4, 2), False),
        (torch.float16, [9, 3], 8, 9, 24, Division(1, 16, 4, 2), True),
    ],
)
def test_decode(
    dtype: torch.dtype,
    lengths: list[int],
    width: int,
    heads: int,
    latent: int,
    division: Division,
    up: bool,
) -> None:
    cache, paging = paged(lengths, latent + ROPE, dtype)
    query = torch.randn(len(lengths) * width, heads, latent + ROPE).to(dtype)
    value_up = (torch.randn(heads, 20, latent) * latent**-0.5).to(dtype).transpose(1, 2)
    arguments = (query, cache, latent, paging, value_up if up else None)
    wanted = latent_decode_reference(*arguments)
    out = torch.full_like(wanted, float("nan"), dtype=dtype)
    ours = latent_decode(*arguments, division=division, out=out)
    assert ours is out
    assert ours.isfinite().all()
    assert error(ours, wanted) < limit(dtype)


@pytest.mark.parametrize("dtype", [torch.float32, torch.float16])
@pytest.mark.parametrize(
    ("length", "width", "heads", "latent", "pieces"),
    [
        (1, 1, 3, 32, 4),  # One piece.
        (40, 1, 16, 32, 4),  # Three pieces of the four, one short; all heads.
        (64, 1, 2, 32, 4),  # All four.
        (150, 1, 3, 40, 4),  # Four pieces of three blocks, the last with one.
        (81, 1, 2, 32, 4),  # Three pieces of two blocks.
        (300, 1, 2, 32, 32),  # More pieces than are added up at a time.
        (49, 2, 16, 32, 4),  # The first token sees nothing of the last piece; two blocks.
        (50, 3, 16, 32, 3),
        (33, 4, 16, 32, 4),  # Two tokens see nothing of the last piece.
        (97, 5, 3, 40, 4),
        (35, 5, 7, 32, 4),  # A block holds parts of tokens, the last is not full.
        (2, 4, 3, 32, 4),  # Padding: two tokens see nothing at all.
    ],
)
def test_together(
    dtype: torch.dtype, length: int, width: int, heads: int, latent: int, pieces: int
) -> None:
    """Rows of `sums` and `logs` that no piece has written are NaN here: none may be read."""
    cache, paging = paged([length], latent + ROPE, dtype)
    query = torch.randn(width, heads, latent + ROPE).to(dtype)
    value_up = (torch.randn(heads, 40, latent) * latent**-0.5).to(dtype).transpose(1, 2)
    arguments = (query, cache, latent, paging, value_up)
    counter, division = torch.zeros(1, dtype=torch.int32), Division(pieces, 16, 4, 2)
    wanted = latent_decode_reference(*arguments)
    out = torch.full_like(wanted, float("nan"), dtype=dtype)
    ours = latent_together(*arguments, counter, division=division, out=out)
    assert ours is out
    assert error(ours, wanted) < limit(dtype)
    steps, blocks = -(-length // 16), -(-width * heads // 16)
    assert counter.item() == blocks * -(-steps // -(-steps // pieces))


def test_prepare_sets_the_counter_that_together_waits_with() -> None:
    projected, counter = torch.randn(1, 2 * (NOPE + ROPE)), torch.tensor([7], dtype=torch.int32)
    query, entry = projected.unflatten(1, (2, -1)), torch.randn(1, 16 + ROPE)
    zeros = torch.zeros(1, dtype=torch.int64)
    norm, turns = (torch.rand(16), torch.tensor(1e-3)), torch.rand(4, ROPE)
    cache, key_up = torch.zeros(4, 16 + ROPE), torch.randn(2, NOPE, 16)
    latent_prepare(query, entry, turns, zeros, norm, zeros, cache, key_up, counter=counter)
    assert counter.item() == 0


@pytest.mark.parametrize(
    ("lengths", "heads", "named"),
    [([4, 4], 2, "2 sequences, 2 rows of 2 heads"), ([4], 33, "1 sequences, 2 rows of 33 heads")],
)
def test_together_is_for_few_queries_of_one_sequence(
    lengths: list[int], heads: int, named: str
) -> None:
    cache, paging = paged(lengths, 24, torch.float32)
    with pytest.raises(ValueError, match=named):
        latent_together(
            torch.randn(2, heads, 24), cache, 16, paging, torch.randn(heads, 16, 8), torch.zeros(1)
        )


def test_padding_keeps_its_nan_to_itself() -> None:
    """Padding writes to page 0, NaN even; nobody else reads it."""
    cache, paging = paged([7, 1, 20], 24, torch.float32)
    paging.table[1] = 0
    query = torch.randn(3, 2, 24)
    query[1] = float("nan")
    ours = latent_decode(query, cache, 16, paging, None)
    assert ours.isfinite().all(dim=1).tolist() == [True, False, True]
    assert error(ours[::2], latent_decode_reference(query, cache, 16, paging, None)[::2]) < 1e-5


def test_the_rule_divides_small_batches_most() -> None:
    pieces = [Division.rule(count, 16).pieces for count in (1, 8, 64, 512)]
    assert pieces == sorted(pieces, reverse=True)
    assert pieces[-1] == 1
