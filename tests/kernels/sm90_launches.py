"""Compile the kernels of attention and sampling for sm_90 and print what they use, as JSON.

Run without TRITON_INTERPRET: `python -m tests.kernels.sm90_launches`.
"""

from __future__ import annotations

import json
from dataclasses import asdict

import torch

from panel.kernels.best_token import best_token
from panel.kernels.boxes import Boxes
from panel.kernels.choose_slots import Slots, choose_slots
from panel.kernels.draft_follow import Course, follow_drafts
from panel.kernels.draft_input import draft_input
from panel.kernels.draft_places import Ring, Rows, draft_places, keep_features
from panel.kernels.draft_verify import Verification, lay_out_verification
from panel.kernels.grouped_decode import grouped_decode
from panel.kernels.grouped_prepare import grouped_prepare
from panel.kernels.grouping import Groups
from panel.kernels.latent_decode import Paging, latent_decode
from panel.kernels.latent_prepare import latent_prepare
from panel.kernels.latent_together import latent_together
from panel.kernels.norm import rms_norm
from panel.kernels.peer_sum import peer_sum
from panel.kernels.permute import Lines, find_places, permute, unpermute
from panel.kernels.received import unpack
from panel.kernels.router import Routing
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
    sample_tokens(logits, Draws(floats, floats), tokens=longs, finite=longs)
    sample_tokens(logits, Draws(floats, floats, Filters(ints, floats, floats)))


def launch_together(width: int, dtype: torch.dtype) -> None:
    """Launch what attends to one sequence of `width` tokens."""
    ints, paging = some(1, dtype=torch.int32), some(1, 64, dtype=torch.int32)
    query, cache = (some(*shape, LATENT + ROPE, dtype=dtype) for shape in ((width, HEADS), (640,)))
    value_up = some(HEADS, 128, LATENT, dtype=dtype).transpose(1, 2)
    latent_together(query, cache, LATENT, Paging(paging, ints, 64), value_up, ints)


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


def launch_course(sequences: int, width: int) -> None:
    """Launch what lets a head go on by itself, with `width` tokens of each sequence."""
    course = Course(
        *some(5, sequences, dtype=torch.int64), some(width, sequences, dtype=torch.int64)
    )
    table, ring = some(sequences, 64, dtype=torch.int32), Ring(65, 2 * width, 16, 1024)
    sampled, drafts = some(2, sequences, width, dtype=torch.int64)
    for rate in (None, 0.7):
        follow_drafts(sampled, drafts, course, rate)
    draft_places(course, table, ring, Rows.of(width, sequences, torch.device("cpu")))
    keep_features(some(sequences * width, HIDDEN), course, table, ring, some(999, HIDDEN))
    longs, real = some(3, sequences * width, dtype=torch.int64), some(9, dtype=torch.bool)
    verification = Verification(*longs, real, some(sequences, dtype=torch.int32))
    lay_out_verification(course, drafts, table, ring, verification)


def launch_grouped(sequences: int, tokens: int, dtype: torch.dtype) -> None:
    """Launch an attention of Qwen3-30B-A3B, and of 235B, where 16 heads share a cached one."""
    rows = sequences * tokens
    longs, turns = some(rows, dtype=torch.int64), some(4096, 128, dtype=torch.float32)
    norm = (some(128, dtype=dtype), some(dtype=dtype).squeeze())
    paging = Paging(some(sequences, 64, dtype=torch.int32), some(sequences, dtype=torch.int32), 16)
    for heads in (32, 64):
        cache, projected = (
            some(640, 2 * 4 * 128, dtype=dtype),
            some(rows, heads + 8, 128, dtype=dtype),
        )
        query = grouped_prepare(projected, turns, longs, longs, cache, (norm, norm))
        grouped_decode(query, cache, 4, paging)


def launch_exchange(rows: int, ranks: int) -> None:
    """Launch what takes rows to their experts and back: 64 of them, six a row."""
    routing, form = Routing(64, 6), Lines(HIDDEN, 6, torch.bfloat16)
    normed, lines = some(rows, HIDDEN), some(ranks * rows, form.width)
    groups = Groups.of(ranks * rows, routing, 64 // ranks, "cpu")
    slots, weights = groups.slots[:rows], groups.weights[:rows]
    homes = Slots(*(some(64, dtype=torch.int64) for _ in range(3)))
    logits, real = some(rows, 64, dtype=torch.float32), some(rows, dtype=torch.bool)
    counts = some(64, dtype=torch.int64)
    choose_slots(logits, None, routing, homes, real, slots, weights, counts)
    for places in (None, find_places(slots, ranks, 64 // ranks)):
        permute(normed, slots, weights, places, lines)
        unpermute(some(ranks * rows, HIDDEN), places, ranks, normed)
    unpack(form, lines, 0, 64 // ranks, 16, some(ranks * rows, HIDDEN), groups)


def launch_sum(ranks: int, width: int, dtype: torch.dtype) -> None:
    """Launch a sum over peers, with the norm and without."""
    hidden, counts = some(4, width, dtype=dtype), some(128, dtype=torch.int32)
    boxes = Boxes(some(ranks, dtype=torch.int64), counts, 1, programs=132)
    peer_sum(some(4, width, dtype=dtype), hidden, boxes)
    norm = (some(width, dtype=dtype), some(dtype=dtype).squeeze())
    peer_sum(some(4, width, dtype=dtype), hidden, boxes, norm)


def main() -> None:
    """Print a list of what was compiled."""
    found: list[Compiled]
    with sm90() as found:
        launch(1)
        launch(32)
        launch(128)
        for width in (1, 2, 4):
            launch_together(width, torch.bfloat16)
            launch_together(width, torch.float32)
        launch_head(1, 1)
        launch_head(80, 5)
        launch_head(128, 1)
        launch_course(1, 2)
        launch_course(16, 4)
        for sequences, tokens in ((1, 1), (8, 1), (128, 1), (1, 4), (8, 9)):
            launch_grouped(sequences, tokens, torch.bfloat16)
        launch_grouped(8, 9, torch.float32)
        launch_exchange(1, 2)
        launch_exchange(128, 8)
        launch_sum(2, HIDDEN, torch.bfloat16)
        launch_sum(8, 7168, torch.bfloat16)
        launch_sum(8, 7168, torch.float32)
    print(json.dumps([asdict(each) for each in found]))


if __name__ == "__main__":
    main()
