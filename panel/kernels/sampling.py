"""From logits to tokens without the host: as `panel.server.draw` does it.

Without filters it is one launch: programs survey a block of columns each, and the last of a row
draws the token. With top-k, top-p or min-p the weights are written out, the least kept weight is
searched for (see `sampling_filter`), and one more launch draws. Bytes moved: a row's logits, in
float32 vocabulary * 4, read once; with filters they stay in the L2 cache for some rows.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
import triton
import triton.language as tl

from panel.kernels.arrivals import arrival_counts, is_last
from panel.kernels.sampling_filter import Filters, filtered


@dataclass(frozen=True, slots=True)
class Draws:
    """What each row is drawn with, on the device."""

    temperature: torch.Tensor
    """float32 [rows]; 0: the first of the greatest."""
    uniform: torch.Tensor
    """Random numbers from [0, 1), float32 or float64 [rows]."""
    filters: Filters | None = None
    """None where no row has any."""


def sample_tokens_reference(
    logits: torch.Tensor, draws: Draws
) -> tuple[torch.Tensor, torch.Tensor]:
    """Return tokens, int64 [rows], and whether a row's maximum is finite, bool [rows].

    Shape: logits [rows, vocabulary], of any float type. A row with a NaN is not finite, and its
    token is any of the vocabulary.
    """
    tokens, finite = [], []
    for number, row in enumerate(logits.float()):
        best = int(row.argmax())
        finite.append(bool(torch.isfinite(row[best])))
        tokens.append(best)
        temperature = float(draws.temperature[number])
        if temperature and finite[-1]:
            weights = ((row - row[best]) / max(temperature, 1e-5)).exp()
            if draws.filters is not None:
                weights = filtered(weights, draws.filters, number)
            sums = weights.double().cumsum(0)
            target = draws.uniform[number].double() * sums[-1]
            tokens[-1] = int(torch.searchsorted(sums, target, right=True))
    return torch.tensor(tokens), torch.tensor(finite)


def sample_tokens(
    logits: torch.Tensor,
    draws: Draws,
    *,
    tokens: torch.Tensor | None = None,
    finite: torch.Tensor | None = None,
    arrivals: torch.Tensor | None = None,
) -> tuple[torch.Tensor, torch.Tensor]:
    """Do what `sample_tokens_reference` does, into `tokens` and `finite` where given.

    The last dimension of `logits` is contiguous. `arrivals`, from
    `arrival_counts`, is shared by calls that follow one another: a second stream needs its own.
    """
    rows, vocabulary = logits.shape
    device = logits.device
    if tokens is None:
        tokens = torch.empty(rows, dtype=torch.int64, device=device)
    if finite is None:
        finite = torch.empty(rows, dtype=torch.bool, device=device)
    if arrivals is None:
        arrivals = arrival_counts(device)
    if rows > arrivals.shape[0]:
        raise ValueError(f"{rows} rows and {arrivals.shape[0]} counters")
    block = 1024 if rows <= 8 else 4096
    blocks = triton.cdiv(vocabulary, block)
    peaks = torch.empty((rows, blocks), dtype=torch.float32, device=device)
    masses = torch.empty((rows, blocks), dtype=torch.float64, device=device)
    highest = torch.empty(rows, dtype=torch.float32, device=device)
    warps = 4 if rows <= 8 else 8
    shape = {"BLOCK": block, "BLOCKS": triton.next_power_of_2(blocks), "num_warps": warps}
    _survey[(blocks, rows)](
        logits,
        draws.temperature,
        draws.uniform,
        peaks,
        masses,
        highest,
        tokens,
        finite,
        arrivals,
        vocabulary,
        logits.stride(0),
        DRAW=draws.filters is None,
        **shape,
    )
    if draws.filters is not None:
        weights = torch.empty((rows, vocabulary), dtype=torch.float32, device=device)
        _weigh[(blocks, rows)](
            logits,
            draws.temperature,
            highest,
            weights,
            vocabulary,
            logits.stride(0),
            BLOCK=block,
            num_warps=warps,
        )
        least = draws.filters.search(weights, arrivals)
        _draw[(blocks, rows)](
            weights,
            least,
            draws.temperature,
            draws.uniform,
            masses,
            tokens,
            arrivals,
            vocabulary,
            **shape,
        )
    return tokens, finite


@triton.jit
def _weights(values, highest, temperature):  # type: ignore[no-untyped-def]
    """Return what is in proportion to the probabilities, 1 for the greatest logit."""
    return tl.exp((values - highest) / tl.maximum(temperature, 1e-5))


@triton.jit  # type: ignore[untyped-decorator]
def _block_of(masses, uniform, BLOCKS: tl.constexpr):  # type: ignore[no-untyped-def]  # noqa: N803
    """Return the block that a draw falls into, and what is left of the draw there."""
    number = tl.arange(0, BLOCKS)
    sums = tl.cumsum(masses, axis=0)
    target = uniform * tl.max(sums, axis=0)
    filled = masses > 0
    block = tl.min(tl.where(filled & (sums > target), number, BLOCKS), axis=0)
    block = tl.minimum(block, tl.max(tl.where(filled, number, 0), axis=0))
    return block, target - tl.max(tl.where(number < block, sums, 0.0), axis=0)


@triton.jit  # type: ignore[untyped-decorator]
def _place_in(weights, target, BLOCK: tl.constexpr):  # type: ignore[no-untyped-def]  # noqa: N803
    """Return the place of a draw among weights: the first whose sum exceeds it."""
    place = tl.arange(0, BLOCK)
    sums = tl.cumsum(weights, axis=0)
    filled = weights > 0
    first = tl.min(tl.where(filled & (sums > target), place, BLOCK), axis=0)
    return tl.minimum(first, tl.max(tl.where(filled, place, 0), axis=0))


@triton.jit
def _ordered(values):  # type: ignore[no-untyped-def]
    """Return logits in float32; a NaN counts as infinite, since comparisons need an order."""
    values = values.to(tl.float32)
    return tl.where(values != values, float("inf"), values)


@triton.jit  # type: ignore[untyped-decorator]
def _survey(  # type: ignore[no-untyped-def]
    logits,
    temperatures,
    uniforms,
    peaks,
    masses,
    highest,
    tokens,
    finite,
    arrivals,
    vocabulary,
    logits_row,
    DRAW: tl.constexpr,  # noqa: N803
    BLOCK: tl.constexpr,  # noqa: N803
    BLOCKS: tl.constexpr,  # noqa: N803
):
    block, row = tl.program_id(0), tl.program_id(1).to(tl.int64)
    blocks = tl.num_programs(0)
    temperature = tl.load(temperatures + row)
    source = logits + row * logits_row
    column = block * BLOCK + tl.arange(0, BLOCK)
    values = tl.load(source + column, mask=column < vocabulary, other=float("-inf"))
    values = _ordered(values)
    peak = tl.max(values, axis=0)
    spot = row * blocks + block
    tl.store(peaks + spot, peak)
    if DRAW:
        mass = tl.zeros((), tl.float32)
        if (temperature > 0) & (peak > float("-inf")) & (peak < float("inf")):
            mass = tl.sum(_weights(values, peak, temperature), axis=0)
        tl.store(masses + spot, mass.to(tl.float64))
    if is_last(arrivals + row, blocks):
        number = tl.arange(0, BLOCKS)
        every = row * blocks + number
        there = number < blocks
        tops = tl.load(peaks + every, mask=there, other=float("-inf"), cache_modifier=".cg")
        top = tl.max(tops, axis=0)
        sound = (top > float("-inf")) & (top < float("inf"))
        tl.store(finite + row, sound)
        tl.store(highest + row, top)
        # The block that has the token, then the token's place there.
        chosen = tl.min(tl.where((tops == top) & there, number, BLOCKS), axis=0)
        left = tl.zeros((), tl.float64)
        drawn = False
        if DRAW:
            drawn = sound & (temperature > 0)
            if drawn:
                found = tl.load(masses + every, mask=there, other=0.0, cache_modifier=".cg")
                found *= _weights(tops, top, temperature).to(tl.float64)
                chosen, left = _block_of(found, tl.load(uniforms + row).to(tl.float64), BLOCKS)
        inside = chosen * BLOCK + tl.arange(0, BLOCK)
        again = tl.load(source + inside, mask=inside < vocabulary, other=float("-inf"))
        again = _ordered(again)
        token = tl.min(tl.where(again == top, inside, vocabulary - 1), axis=0)
        if DRAW:  # noqa: SIM102  (known to the compiler)
            if drawn:
                weights = _weights(again, top, temperature)
                token = chosen * BLOCK + _place_in(weights, left.to(tl.float32), BLOCK)
        tl.store(tokens + row, token.to(tl.int64))


@triton.jit  # type: ignore[untyped-decorator]
def _weigh(  # type: ignore[no-untyped-def]
    logits,
    temperatures,
    highest,
    weights,
    vocabulary,
    logits_row,
    BLOCK: tl.constexpr,  # noqa: N803
):
    row = tl.program_id(1).to(tl.int64)
    column = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    inside = column < vocabulary
    values = tl.load(logits + row * logits_row + column, mask=inside, other=0.0).to(tl.float32)
    top = tl.load(highest + row)
    if (top > float("-inf")) & (top < float("inf")):
        result = _weights(values, top, tl.load(temperatures + row))
    else:
        result = tl.zeros((BLOCK,), tl.float32)
    tl.store(weights + row * vocabulary + column, result, mask=inside)


@triton.jit  # type: ignore[untyped-decorator]
def _draw(  # type: ignore[no-untyped-def]
    weights,
    least,
    temperatures,
    uniforms,
    masses,
    tokens,
    arrivals,
    vocabulary,
    BLOCK: tl.constexpr,  # noqa: N803
    BLOCKS: tl.constexpr,  # noqa: N803
):
    """Draw from the weights that are not below the least; greedy and unsound rows have a token."""
    block, row = tl.program_id(0), tl.program_id(1).to(tl.int64)
    blocks = tl.num_programs(0)
    source = weights + row * vocabulary
    floor = tl.load(least + row)
    column = block * BLOCK + tl.arange(0, BLOCK)
    values = tl.load(source + column, mask=column < vocabulary, other=0.0)
    kept = tl.where(values >= floor, values, 0.0).to(tl.float64)
    tl.store(masses + row * blocks + block, tl.sum(kept, axis=0))
    if is_last(arrivals + row, blocks):
        number = tl.arange(0, BLOCKS)
        every = row * blocks + number
        found = tl.load(masses + every, mask=number < blocks, other=0.0, cache_modifier=".cg")
        if (tl.max(found, axis=0) > 0) & (tl.load(temperatures + row) > 0):
            chosen, left = _block_of(found, tl.load(uniforms + row).to(tl.float64), BLOCKS)
            inside = chosen * BLOCK + tl.arange(0, BLOCK)
            again = tl.load(source + inside, mask=inside < vocabulary, other=0.0)
            again = tl.where(again >= floor, again, 0.0)
            token = chosen * BLOCK + _place_in(again, left.to(tl.float32), BLOCK)
            tl.store(tokens + row, token.to(tl.int64))
