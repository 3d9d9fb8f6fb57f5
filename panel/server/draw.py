"""A draw from what a request leaves of the distribution of one row."""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt

from panel.server.messages import Generate

Floats = npt.NDArray[np.floating[Any]]
Places = npt.NDArray[np.intp]

_BLOCK = 64
"""Weights whose sum is looked at before each of them is."""
_FEW = 256
"""Top-p is looked for first among weights of at least what it leaves out, divided by this."""


def draw(logits: Floats, best: int, request: Generate, number: float) -> int:
    """Return the token at which the running sum of the weights passes `number` of the whole.

    `logits` has shape [vocabulary] and a finite maximum, at `best`; `number` is from [0, 1).
    Temperature comes first, then top-k, top-p and min-p, each on what the one before has left.
    Tokens as probable as the last one kept are kept too.
    """
    weights = logits - logits[best]
    if request.temperature != 1:
        weights /= max(request.temperature, 1e-5)
    np.exp(weights, out=weights)
    places, least = None, request.min_p
    if 0 < request.top_k < len(weights):
        lowest = np.partition(weights, -request.top_k)[-request.top_k]
        places, weights = _at_least(weights, lowest)
    if request.top_p < 1:
        found, weights, lowest = _nucleus(weights, request.top_p)
        places, least = found if places is None else places[found], max(least, lowest)
    if places is None and least > 0:
        places, weights = _at_least(weights, least)
    if places is None:
        return _draw_any(weights, number)
    # What is left out adds nothing to the sums, and so is never where they pass anything.
    sums = _sums(weights * (weights >= least))
    return int(places[sums.searchsorted(number * float(sums[-1]), "right")])


def _at_least(weights: Floats, least: float) -> tuple[Places, Floats]:
    """Return where weights of at least so much are, and what they are."""
    places = (weights >= least).nonzero()[0]
    return places, weights[places]


def _nucleus(weights: Floats, share: float) -> tuple[Places, Floats, float]:
    """Return where the fewest weights are that have a share of the whole, what they are, and the
    least of them. Some smaller ones may be among them.
    """
    whole = float(np.add.reduce(weights, dtype=np.float64))
    # All weights below the second floor together are half of what is left out.
    for parts in (_FEW, 2 * len(weights)):
        places, few = _at_least(weights, (1 - share) * whole / parts)
        rising = few.astype(np.float64)
        rising.sort()
        falling = rising[::-1]
        last = int(np.add.accumulate(falling).searchsorted(share * whole))
        if last < len(falling):
            return places, few, float(falling[last])
    return places, few, float(falling[-1])


def _sums(weights: Floats) -> npt.NDArray[np.float64]:
    return np.add.accumulate(weights.astype(np.float64))


def _draw_any(weights: Floats, number: float) -> int:
    begins = np.arange(0, len(weights), _BLOCK)
    sums = np.add.reduceat(weights, begins, dtype=np.float64).cumsum()
    wanted = number * float(sums[-1])
    block = min(int(sums.searchsorted(wanted, "right")), len(sums) - 1)
    if block:
        wanted -= float(sums[block - 1])
    inside = _sums(weights[block * _BLOCK : (block + 1) * _BLOCK])
    # What a block comes to may differ in the last bit from what its weights do.
    return block * _BLOCK + min(int(inside.searchsorted(wanted, "right")), len(inside) - 1)
