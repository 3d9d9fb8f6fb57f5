"""Check and time the kernels of a draft head's layer on one GPU, in bf16.

`python benchmarks/kernels_draft.py`, from the repository root, on an otherwise idle GPU. Shape: a
head for DeepSeek-V2-Lite, 16 heads with keys of their own; checks also have eight heads that share
a key. Each kernel is held against float32; the attention is timed in several divisions, the first
of which is the rule's.
"""

from __future__ import annotations

import sys
import time
from functools import partial
from pathlib import Path

import torch

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from benchmarks.kernels_attention import (
    GPU,
    HIDDEN,
    Report,
    norm_of,
    paging,
    peak,
    rand,
    short,
)
from panel.kernels.arrivals import arrival_counts
from panel.kernels.best_token import best_token, best_token_reference
from panel.kernels.draft_follow import Course, follow_drafts, follow_drafts_reference
from panel.kernels.draft_input import draft_input, draft_input_reference
from panel.kernels.draft_places import (
    Ring,
    Rows,
    draft_places,
    draft_places_reference,
    keep_features,
    keep_features_reference,
)
from panel.kernels.grouped_decode import grouped_decode, grouped_decode_reference, rule
from panel.kernels.grouped_prepare import grouped_prepare, grouped_prepare_reference
from panel.kernels.latent_decode import Division
from panel.kernels.timing import microseconds
from panel.server.simulated import is_taken

WIDTH, REDUCED = 128, 32000


def check(report: Report) -> None:
    for heads, groups in ((16, 16), (64, 8)):
        for sequences, tokens, length in ((1, 1, 300), (4, 1, 1000), (16, 5, 333), (40, 1, 90)):
            paged = paging(sequences, length)
            paged.lengths[1:].copy_(torch.randint(tokens, length + 1, (sequences - 1,)))
            cache = rand((paged.table.numel() + 1) * paged.page_size, 2 * groups * WIDTH)
            query = rand(sequences * tokens, heads, WIDTH, scale=3 * WIDTH**-0.5)
            wanted = grouped_decode_reference(query, cache, groups, paged, 1)
            ours = grouped_decode(query, cache, groups, paged, 1)
            same = torch.equal(ours, grouped_decode(query, cache, groups, paged, 1))
            name = f"grouped decode {sequences}x{tokens}, {heads}/{groups} heads, {length} keys"
            report.check(f"{name}, {'equal' if same else 'NOT EQUAL'} twice", ours, wanted)
        rows = 20
        projected, angles = rand(rows, heads + 2 * groups, WIDTH), torch.rand(99, WIDTH // 2) * 6
        turns = torch.view_as_real(torch.polar(torch.ones_like(angles), angles)).flatten(1).to(GPU)
        positions = torch.randint(99, (rows,), device=GPU)
        slots = torch.randperm(64, device=GPU)[:rows]
        caches = [torch.zeros(64, 2 * groups * WIDTH, device=GPU).bfloat16() for _ in range(2)]
        wanted = grouped_prepare_reference(projected, turns, positions, slots, caches[0])
        ours = grouped_prepare(projected.clone(), turns, positions, slots, caches[1])
        report.check(f"grouped prepare, {heads}/{groups} heads", ours, wanted)
        report.check(f"grouped prepare, {heads}/{groups} heads, cache", caches[1], caches[0])
    embedding, features = rand(1000, HIDDEN), rand(64, HIDDEN)
    drawn = torch.randint(1000, (8,), device=GPU)
    for places in (None, torch.randint(64, (8,), device=GPU)):
        arguments = (drawn, embedding, norm_of(HIDDEN), places, features, norm_of(HIDDEN))
        ours, passed = draft_input(*arguments, normed=True)
        wanted, going_on = draft_input_reference(*arguments, normed=True)
        report.check("draft input", ours, wanted)
        report.check("draft input, what goes on", passed, going_on)
    for rows in (1, 16):
        logits, ids = rand(rows, REDUCED), torch.randperm(REDUCED, device=GPU)
        out = torch.zeros(rows, 3, dtype=torch.int64, device=GPU)[:, 1]
        best_token(logits, ids, out)
        report.check(f"best token, {rows} rows", out, best_token_reference(logits, ids))


def check_course(report: Report) -> None:
    """Where cycles go on by themselves, held against the same on the host."""
    width, rows, ring = 4, 16, Ring(pages=256, recent=8, page_size=16, context=200)
    table = 1 + torch.randperm(255)[: rows * 15].view(rows, 15).int()
    for rate in (None, 0.7):
        host = Course(
            torch.randint(width, 190, (rows,)),
            torch.randperm(rows),
            torch.randint(width + 1, (rows,)),
            torch.randint(5, 16, (rows,)),
            torch.zeros(rows, dtype=torch.int64),
            torch.zeros(width, rows, dtype=torch.int64),
        )
        sampled, drafts = torch.randint(2, (rows, width)), torch.randint(2, (rows, width - 1))
        device = Course(*(each.to(GPU) for each in host))
        taken = None if rate is None else partial(is_taken, rate=rate)
        follow_drafts_reference(sampled, drafts, host, taken)
        follow_drafts(sampled.to(GPU), drafts.to(GPU), device, rate)
        for name, ours, wanted in zip(Course._fields, device, host, strict=True):
            report.check(f"followed: {name}, acceptance {rate or 'real'}", ours.cpu(), wanted)
    found, wanted = Rows.of(width, rows, GPU), Rows.of(width, rows, torch.device("cpu"))
    draft_places(device, table.to(GPU), ring, found)
    draft_places_reference(host, table, ring, wanted)
    for name, ours, theirs in zip(Rows._fields, found, wanted, strict=True):
        report.check(f"places: {name}", ours.cpu(), theirs)
    known = rand(rows * width, HIDDEN)
    features = torch.zeros(256 + rows * 8, HIDDEN, dtype=torch.bfloat16, device=GPU)
    kept = features.cpu()
    keep_features(known, device, table.to(GPU), ring, features)
    keep_features_reference(known.cpu(), host, table, ring, kept)
    report.check("features kept", features.cpu(), kept)


def time_all(report: Report) -> None:
    for sequences, length in ((1, 300), (1, 4000), (4, 300), (16, 300)):
        paged = paging(sequences, length)
        caches = [
            rand((paged.table.numel() + 1) * paged.page_size, 2 * 16 * WIDTH)
            for _ in range(max(2, 200_000_000 // (sequences * length * 8192)))
        ]
        query = rand(sequences, 16, WIDTH, scale=WIDTH**-0.5)
        first = rule(sequences, 16)
        others = [
            Division(pieces, keys, 4, 2)
            for pieces in (max(1, first.pieces // 2), first.pieces, 2 * first.pieces)
            for keys in (32, 64, 128)
        ]
        for division in [first, *others]:
            calls = [
                partial(grouped_decode, query, cache, 16, paged, 1, division=division)
                for cache in caches
            ]
            name = f"grouped decode {sequences} of {length}, {short(division)}"
            report.timed(name, microseconds(calls), sequences * length * 8192)
    for rows in (1, 4, 16):
        tokens, hidden = torch.zeros(rows, dtype=torch.int64, device=GPU), rand(rows, HIDDEN)
        norm, embedding = norm_of(HIDDEN), rand(1000, HIDDEN)
        look = partial(draft_input, tokens, embedding, norm, None, hidden, norm, normed=False)
        report.timed(f"draft input, {rows} rows", microseconds([look]), rows * HIDDEN * 10)
        logits, ids = rand(rows, REDUCED), torch.arange(REDUCED, device=GPU)
        best = partial(best_token, logits, ids, tokens)
        report.timed(f"best token, {rows} rows", microseconds([best]), logits.nbytes)


def main() -> int:
    """Do both; 1 where a check failed."""
    arrival_counts(GPU)
    report = Report(time.monotonic() + 60)
    for part in (peak, check, check_course, time_all):
        report.part(part)
    return report.end()


if __name__ == "__main__":
    sys.exit(main())
