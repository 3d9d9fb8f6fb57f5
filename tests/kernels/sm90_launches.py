"""Compile the kernels of attention and sampling for sm_90 and print what they use, as JSON.

Run without TRITON_INTERPRET: `python -m tests.kernels.sm90_launches`.
"""

from __future__ import annotations

import json
from dataclasses import asdict

import torch

from panel.kernels.best_token import best_token
from panel.kernels.draft_input import draft_input
from panel.kernels.grouped_decode import grouped_decode
from panel.kernels.grouped_prepare import grouped_prepare
from panel.kernels.latent_decode import Paging, latent_decode
from panel.kernels.latent_prepare import latent_prepare
from panel.kernels.norm import rms_norm
from panel.kernels.sampling import Draws, sample_tokens
from panel.kernels.sampling_filter import Filters
from tests.kernels.compiling import Compiled, sm90

LATENT, ROPE, HEADS, HIDDEN, DOWN = 512, 64, 16, 2048, 16 * 192 + 576


def some(*shape: int, dtype: torch.dtype = torch.bfloat16) -> torch.Tensor:
    return torch.empty(shape, dtype=dtype)


def launch(rows: int) -> None:
    """Launch everything for DeepSeek-V2-Lite; nothing runs."""
    ints, longs, floats = (
        some(rows, dtype=dtype) for dtype in (torch.int32, torch.int64, torch.float32)
    )
    norm = (some(HIDDEN), some().squeeze())
    hidden, cache = some(rows, HIDDEN), some(640, LATENT + ROPE)
    rms_norm(hidden, *norm)
    projected = some(rows, DOWN)
    query = latent_prepare(
        projected[:, : -LATENT - ROPE].unflatten(1, (HEADS, -1)),
        projected[:, -LATENT - ROPE :],
        some(4096, ROPE, dtype=torch.float32),
        longs,
        (some(LATENT), norm[1]),
        longs,
        cache,
        some(HEADS, 128, LATENT),
    )
    paging = Paging(some(rows, 64, dtype=torch.int32), ints, 64)
    value_up = some(HEADS, 128, LATENT).transpose(1, 2)
    latent_decode(query, cache, LATENT, paging, value_up)
    logits = some(rows, 102400, dtype=torch.float32)
    sample_tokens(logits, Draws(floats, floats))
    sample_tokens(logits, Draws(floats, floats, Filters(ints, floats, floats)))


def launch_head(rows: int, tokens: int) -> None:
    """Launch what drafts a token, for heads of their own keys and for eight that share them."""
    longs = some(rows, dtype=torch.int64)
    hidden, norm = some(rows, HIDDEN), (some(HIDDEN), some().squeeze())
    draft_input(longs, hidden, norm, longs, hidden, norm, normed=False)
    draft_input(longs, hidden, norm, None, hidden, norm, normed=True)
    best_token(some(rows, 32000), longs, some(rows, 3, dtype=torch.int64)[:, 1])
    sequences = rows // tokens
    paging = Paging(some(sequences, 64, dtype=torch.int32), some(sequences, dtype=torch.int32), 16)
    for heads, groups in ((16, 16), (64, 8)):
        cache = some(640, 2 * groups * 128)
        projected = some(rows, heads + 2 * groups, 128)
        query = grouped_prepare(
            projected, some(4096, 128, dtype=torch.float32), longs, longs, cache
        )
        grouped_decode(query, cache, groups, paging, 1)


def main() -> None:
    """Print a list of what was compiled."""
    found: list[Compiled]
    with sm90() as found:
        launch(1)
        launch(32)
        launch(128)
        launch_head(1, 1)
        launch_head(80, 5)
        launch_head(128, 1)
    print(json.dumps([asdict(each) for each in found]))


if __name__ == "__main__":
    main()
