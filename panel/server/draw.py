"""A draw from what a request leaves of the distribution of one row."""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt

from panel.server.messages import Generate

Floats = npt.NDArray[np.floating[Any]]

_BLOCK = 64
"""Weights whose sum is looked at before each of them is."""
_FEW = 1024
"""Top-p is looked for first among weights of at least what it leaves out, divided by this."""


def draw(logits: Floats, request: Generate, number: float) -> int:
    """Return the token at which the running sum of the weights passes `number` of the whole.

    `logits` has shape [vocabulary] and a finite maximum; `number` is from [0, 1). Temperature comes
    first, then top-k, top-p and min-p, each on what the one before has left. Tokens as probable as
    the last one kept are kept too.
    """
    weights = logits - logits[logits.argmax()]
    if request.temperature != 1:
        weights /= max(request.temperature, 1e-5)
    np.exp(weights, out=weights)
    least = _least_kept(weights, request)
    return _draw_above(weights, least, number) if least else _draw_any(weights, number)


def _least_kept(weights: Floats, request: Generate) -> float:
    """Return the least weight that is kept; 0 where all are."""
    if 0 < request.top_k < len(weights):
        least = np.partition(weights, -request.top_k)[-request.top_k]
        kept = float(least)
        if request.top_p < 1:
            kept = _nucleus(weights[weights >= least], request.top_p)
    elif request.top_p < 1:
        kept = _nucleus(weights, request.top_p)
    else:
        kept = 0
    return max(kept, request.min_p)


def _nucleus(weights: Floats, share: float) -> float:
    """Return the least of the fewest weights that have a share of the whole."""
    whole = float(np.add.reduce(weights, dtype=np.float64))
    # All weights below the second floor together are half of what is left out.
    for parts in (_FEW, 2 * len(weights)):
        floor = (1 - share) * whole / parts
        falling = np.sort(weights[(weights >= floor).nonzero()])[::-1]
        last = int(falling.astype(np.float64).cumsum().searchsorted(share * whole))
        if last < len(falling):
            return float(falling[last])
    return float(falling[-1])


def _draw_above(weights: Floats, least: float, number: float) -> int:
    places = (weights >= least).nonzero()[0]
    sums = weights[places].astype(np.float64).cumsum()
    place = int(sums.searchsorted(number * float(sums[-1]), "right"))
    return int(places[min(place, len(places) - 1)])


def _draw_any(weights: Floats, number: float) -> int:
    begins = np.arange(0, len(weights), _BLOCK)
    sums = np.add.reduceat(weights, begins, dtype=np.float64).cumsum()
    wanted = number * float(sums[-1])
    block = min(int(sums.searchsorted(wanted, "right")), len(sums) - 1)
    if block:
        wanted -= float(sums[block - 1])
    inside = weights[block * _BLOCK : (block + 1) * _BLOCK].astype(np.float64).cumsum()
    # What a block comes to may differ in the last bit from what its weights do.
    return block * _BLOCK + min(int(inside.searchsorted(wanted, "right")), len(inside) - 1)
