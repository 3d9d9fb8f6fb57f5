"""Check and time an attention over grouped heads on one GPU, in bf16.

`python benchmarks/kernels_grouped.py [--only PART] [--seconds 60]`, from the repository root, on an
otherwise idle GPU. Shape: Qwen3-30B-A3B, 32 heads that share four cached ones, normalised queries
and keys; checks also have the parts of a rank of eight, and 16 heads a cached one. Everything is
held against float32, flash attention of prompts too. Of the decode's divisions it prints the rule's
and the best. GB/s count each key, value and weight once.
"""

from __future__ import annotations

import argparse
import sys
import time
from dataclasses import dataclass
from functools import partial
from pathlib import Path

import torch

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from benchmarks.kernels_attention import (
    GPU,
    Report,
    at_once,
    norm_of,
    paging,
    peak,
    projection,
    rand,
    short,
)
from panel.kernels.grouped_decode import grouped_decode, grouped_decode_reference, rule
from panel.kernels.grouped_prepare import grouped_prepare, grouped_prepare_reference
from panel.kernels.latent_decode import Division, Paging
from panel.kernels.timing import microseconds
from panel.server.cuda.grouped import attend_grouped
from panel.server.cuda.layout import Chunk
from panel.server.cuda.linear import linear
from panel.server.cuda.prefill import attend_chunks
from panel.server.cuda.step import Step
from panel.server.grouped import GroupedAttention
from panel.server.norm import RMSNorm

HIDDEN, HEADS, GROUPS, WIDTH, CONTEXT = 2048, 32, 4, 128, 8192
KEY = 2 * GROUPS * WIDTH * 2
"""Bytes of a token in the cache of one layer."""
L2 = 200_000_000
"""More bytes than the L2 cache holds: calls in turn then read from memory."""


def turns() -> torch.Tensor:
    angles = torch.rand(CONTEXT, WIDTH // 2, device=GPU) * 6
    return torch.view_as_real(torch.polar(torch.ones_like(angles), angles)).flatten(1).contiguous()


def cache_for(paged: Paging, groups: int = GROUPS) -> torch.Tensor:
    return rand((paged.table.numel() + 1) * paged.page_size, 2 * groups * WIDTH)


def check_prepare(report: Report) -> None:
    for heads, groups in ((32, 4), (64, 4), (4, 1)):
        for rows in (1, 70):
            projected = rand(rows, heads + 2 * groups, WIDTH)
            places = torch.randint(CONTEXT, (rows,), device=GPU)
            slots = torch.randperm(1000, device=GPU)[:rows]
            caches = [torch.zeros(1000, 2 * groups * WIDTH, device=GPU).bfloat16() for _ in "12"]
            common = (turns(), places, slots)
            norms = (norm_of(WIDTH), norm_of(WIDTH))
            wanted = grouped_prepare_reference(projected, *common, caches[0], norms)
            ours = grouped_prepare(projected.clone(), *common, caches[1], norms)
            report.check(f"prepare, {heads}/{groups} heads, {rows} rows", ours, wanted)
            report.check(f"prepare, {heads}/{groups} heads, {rows} rows, cache", *caches[::-1])


def check_decode(report: Report) -> None:
    cases = (
        (1, 1, 32, 4, 300),
        (1, 1, 32, 4, 7000),
        (8, 1, 32, 4, 1000),
        (130, 1, 32, 4, 200),
        (1, 4, 32, 4, 500),
        (9, 9, 32, 4, 333),
        (4, 5, 64, 4, 700),
        (7, 2, 4, 1, 900),
    )
    at_once(lambda case: check_one_decode(report, *case), cases)


def check_one_decode(
    report: Report, sequences: int, tokens: int, heads: int, groups: int, length: int
) -> None:
    paged = paging(sequences, length)
    paged.lengths[1:].copy_(torch.randint(tokens, length + 1, (sequences - 1,)))
    cache = cache_for(paged, groups)
    query = rand(sequences * tokens, heads, WIDTH, scale=3 * WIDTH**-0.5)
    wanted = grouped_decode_reference(query, cache, groups, paged)
    ours = grouped_decode(query, cache, groups, paged)
    same = torch.equal(ours, grouped_decode(query, cache, groups, paged))
    name = f"decode {sequences}x{tokens}, {heads}/{groups} heads, {length} keys"
    report.check(f"{name}, {'equal' if same else 'NOT EQUAL'} twice", ours, wanted)
    if not same:
        report.failed.append(f"{name}: not equal twice")


def step_of(chunks: list[tuple[int, int]]) -> Step:
    """Return a step of chunks alone, each of a size and a start."""
    every = tuple(Chunk(*chunk) for chunk in chunks)
    sizes = {
        "query_ends": [chunk.size for chunk in every],
        "key_ends": [chunk.start + chunk.size for chunk in every],
    }
    views = {
        name: torch.tensor([0, *each], device=GPU).cumsum(0, dtype=torch.int32)
        for name, each in sizes.items()
    }
    return Step(0, 1, every, views, None)


def check_prefill(report: Report) -> None:
    """Hold torch's flash attention against its plain one."""
    for chunks in ([(300, 0)], [(70, 0), (1, 200), (130, 65)], [(1, 300), (1, 0), (1, 77)]):
        step = step_of(chunks)
        count = sum(start + size for size, start in chunks)
        query = rand(sum(size for size, _ in chunks), HEADS, WIDTH, scale=3 * WIDTH**-0.5)
        keys, values = rand(count, 2, GROUPS, WIDTH).unbind(1)
        wanted = attend_chunks(query.float(), keys.float(), values.float(), step)
        report.check(f"prefill {chunks}", attend_chunks(query, keys, values, step), wanted)


def time_prepare(report: Report) -> None:
    common, norms = turns(), (norm_of(WIDTH), norm_of(WIDTH))
    for rows in (1, 32, 128, 8192):
        cache = rand(max(rows, 1000), 2 * GROUPS * WIDTH)
        places = torch.arange(rows, device=GPU)
        copies = [rand(rows, HEADS + 2 * GROUPS, WIDTH) for _ in range(4)]
        calls = [
            partial(grouped_prepare, each, common, places, places, cache, norms) for each in copies
        ]
        report.timed(f"prepare, {rows} rows", microseconds(calls), 2 * copies[0].nbytes)


def sweep_decode(report: Report) -> None:
    """Time divisions, their combining included."""
    for case in ((1, 256), (1, 4096), (8, 256), (8, 4096), (32, 256), (128, 256)):
        sweep_one_decode(report, *case)
    for tokens in (4, 8):
        sweep_one_decode(report, 8, 1024, tokens)


def candidates(ruled: Division) -> list[Division]:
    """Return the rule's division and its neighbours."""
    pieces = {min(64, ruled.pieces * 2), ruled.pieces, max(1, ruled.pieces // 2)}
    shapes = ((32, 4, 2), (64, 4, 2), (64, 4, 3), (128, 4, 2), (64, 8, 2), (128, 8, 2))
    others = [Division(count, *shape) for count in sorted(pieces) for shape in shapes]
    return list(dict.fromkeys((ruled, *others)))


def sweep_one_decode(report: Report, sequences: int, length: int, tokens: int = 1) -> None:
    paged = paging(sequences, length)
    size = sequences * length * KEY
    caches = [cache_for(paged) for _ in range(max(2, min(200, L2 // size)))]
    query = rand(sequences * tokens, HEADS, WIDTH, scale=WIDTH**-0.5)
    times = {}
    for division in candidates(rule(sequences, GROUPS, tokens * HEADS // GROUPS)):
        calls = [
            partial(grouped_decode, query, cache, GROUPS, paged, division=division)
            for cache in caches
        ]
        times[division] = microseconds(calls)
    ruled, best = next(iter(times)), min(times, key=times.__getitem__)
    name = f"decode {sequences}x{tokens} of {length}"
    report.timed(name, times[ruled], size, short(ruled))
    report.timed(f"{name}, best", times[best], size, short(best))


def time_prefill(report: Report) -> None:
    for size, count in ((2048, 4), (8192, 1)):
        step = step_of([(size, 0)] * count)
        query = rand(size * count, HEADS, WIDTH, scale=WIDTH**-0.5)
        keys, values = rand(size * count, 2, GROUPS, WIDTH).unbind(1)
        spent = microseconds([partial(attend_chunks, query, keys, values, step)])
        done = 2 * count * size * size * HEADS * WIDTH
        print(f"prefill {count} x {size}: {spent:.0f} us, {done / spent / 1e6:.0f} TFLOP/s")


def random_attention() -> GroupedAttention:
    def norm(width: int) -> RMSNorm:
        return RMSNorm(*norm_of(width))

    columns = (HEADS + 2 * GROUPS) * WIDTH
    qkv, out = projection(HIDDEN, columns), projection(HEADS * WIDTH, HIDDEN)
    return GroupedAttention(
        norm(HIDDEN), qkv, None, norm(WIDTH), norm(WIDTH), out, None, HEADS, GROUPS
    )


def time_layer(report: Report) -> None:
    """Time the attention's half of a layer as the engine runs it."""
    layers = [random_attention() for _ in range(12)]
    rotation = turns()
    weights = layers[0].qkv.nbytes + layers[0].out.nbytes
    for rows, length in ((1, 256), (8, 256), (32, 256), (128, 256), (8, 4096)):
        paged, hidden = paging(rows, length), rand(rows, HIDDEN)
        slots = paged.table[:, (length - 1) // paged.page_size].long() * paged.page_size
        views = {
            "positions": torch.full((rows,), length - 1, device=GPU),
            "slots": slots + (length - 1) % paged.page_size,
            "table": paged.table,
            "lengths": paged.lengths,
        }
        layer = Layer(Step(rows, 1, (), views, None), hidden, rotation, paged.page_size)
        calls = [partial(layer, each, cache_for(paged)) for each in layers]
        size = weights + rows * length * KEY
        report.timed(f"attention, a layer, {rows} x {length}", microseconds(calls), size)


@dataclass(frozen=True, slots=True)
class Layer:
    """What the layers of a step share."""

    step: Step
    hidden: torch.Tensor
    rotation: torch.Tensor
    page_size: int

    def __call__(self, attention: GroupedAttention, cache: torch.Tensor) -> None:
        normed = attention.norm(self.hidden)
        mixed = attend_grouped(attention, normed, self.step, cache, self.rotation, self.page_size)
        linear(mixed, attention.out, residual=self.hidden)


PARTS = (
    peak,
    check_prepare,
    check_decode,
    check_prefill,
    time_prepare,
    time_prefill,
    time_layer,
    sweep_decode,
)


def main() -> int:
    """Do all parts; 1 where a check failed or a part did."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--seconds", type=float, default=60, help="start nothing after these")
    parser.add_argument("--only", default="", help="parts whose names hold this")
    options = parser.parse_args()
    torch.manual_seed(0)
    report = Report(time.monotonic() + options.seconds)
    for part in PARTS:
        if part is peak or options.only in part.__name__:
            report.part(part)
    return report.end()


if __name__ == "__main__":
    sys.exit(main())
