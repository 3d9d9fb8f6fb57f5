"""Where the GPU's time goes in a decode step: one rank, no API, random weights.

    python benchmarks/gpu_steps.py [--config FILE] [--layers N] [--batch 1 8 32 128] [--keys 256]
                                   [--kernels] [--prefill] [--head]

Weights are made on the GPU, prompts and routing are random. Each batch size is captured as the
engine does it and replayed; the time is the median of several replays of the whole step without
sampling. `--kernels` adds a table of kernels by time. `--prefill` times 8 chunks of 2048 tokens in
steps of 8192. `--head` times the parts of a speculative cycle with a random draft head: extend and
three drafts, verification, and what keeps the features.
"""

from __future__ import annotations

import argparse
import json
import random
import sys
import time
from array import array
from collections import defaultdict
from dataclasses import replace
from pathlib import Path
from statistics import median

import torch
from msgspec import structs

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from panel.server.config import parse_config
from panel.server.cuda.forward import KernelForward
from panel.server.cuda.head import KernelHead
from panel.server.cuda.layout import Paper, lay_out
from panel.server.cuda.plans import kept_plans
from panel.server.cuda.stack import Stack
from panel.server.draft.load import load_draft
from panel.server.draft.places import Places
from panel.server.draft.shape import AUX, dummy_shape
from panel.server.loader import load_model
from panel.server.loading import Loading
from panel.server.parallel import Shard
from panel.server.placement import Placement
from panel.server.plan import Plan, Segment, Work
from panel.server.reduction import Alone
from panel.server.shape import ModelConfig
from panel.server.weights import DummySource

CONFIG = Path(__file__).parents[1] / "panel/config/data/models/deepseek-v2-lite.json"
PAGE, CONTEXT, ROWS = 16, 4096, 8192 + 128
PAGES = 8 * CONTEXT // PAGE
DRAFTS = 3


def build(config: ModelConfig) -> KernelForward:
    """Return the model on the GPU with random weights."""
    device, shard = torch.device("cuda"), Shard(0, 1)
    loading = Loading(config, shard, DummySource(0, device), device, torch.bfloat16)
    count = config.experts.routed
    placements = {
        layer: Placement.of(range(count), shard, count, None).to(device)
        for layer in config.expert_layers
    }
    model = load_model(loading, placements, None, CONTEXT, lambda done, total: None)
    width = shard.cache_width(config.attention)
    cache = torch.randn(
        config.layers, (PAGES + 1) * PAGE, width, dtype=torch.bfloat16, device=device
    )
    reduction = Alone(torch.empty(ROWS, config.hidden_size, dtype=torch.bfloat16, device=device))
    plans = kept_plans(model, config)
    stack = Stack.of(model, config, cache, reduction, PAGE, rows=ROWS, plans=plans)
    return KernelForward(stack, Paper(PAGE, CONTEXT, 1))


def segments(count: int, size: int, start: int, vocabulary: int) -> list[Segment]:
    """Return the next `size` tokens of sequences that have `start` tokens each."""
    needed = -(-(start + size) // PAGE)
    numbers = random.Random(0)
    return [
        Segment(
            [numbers.randrange(vocabulary) for _ in range(size)],
            start,
            array("i", range(1 + n * needed, 1 + (n + 1) * needed)).tobytes(),
        )
        for n in range(count)
    ]


def replays(forward: KernelForward, batch: int, keys: int, vocabulary: int) -> list[float]:
    """Return the milliseconds of some replays of one step."""
    plan = Plan(Work.DECODE, segments(batch, 1, keys - 1, vocabulary), rows=batch)
    captured = forward.graphs[batch, 1]
    captured.fill(lay_out(plan, forward.paper, 1))
    return timed(captured.graph)


def timed(graph: torch.cuda.CUDAGraph) -> list[float]:
    """Return the milliseconds of some replays."""
    times = []
    for _ in range(20):
        start, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))
        start.record()
        graph.replay()
        end.record()
        end.synchronize()
        times.append(start.elapsed_time(end))
    return times


def build_head(
    config: ModelConfig, forward: KernelForward, batches: int
) -> tuple[KernelForward, KernelHead]:
    """Return the model as one that a draft head of random weights looks at, and the head."""
    device, shape = torch.device("cuda"), dummy_shape(config)
    loading = Loading(config, Shard(0, 1), DummySource(0, device), device, torch.bfloat16)
    draft = load_draft(shape, loading, forward.stack.model.embedding, CONTEXT)
    aux = forward.stack.cache.new_zeros(ROWS, AUX * config.hidden_size)
    model = replace(forward.stack.model, taps=shape.aux_layers)
    paper = Paper(PAGE, CONTEXT, DRAFTS + 1)
    verifies = KernelForward(replace(forward.stack, model=model, aux=aux), paper)
    places = Places(PAGES + 1, 2 * paper.width, PAGE)
    features = aux.new_zeros(places.pages + batches * places.recent, config.hidden_size)
    cache = torch.randn(
        (PAGES + 1) * PAGE, Shard(0, 1).cache_width(shape.attention), device=device
    ).bfloat16()
    head = KernelHead.of(draft, cache, features, aux, places, paper, sequences=batches)
    return verifies, head


def print_cycle(
    forward: KernelForward, head: KernelHead, batch: int, keys: int, vocabulary: int
) -> None:
    """Capture the parts of a cycle, and print what each takes."""
    width = head.width
    forward.prepare(batch, width)
    head.prepare(batch)
    members = [
        structs.replace(segment, seat=seat, fresh=[1] * DRAFTS)
        for seat, segment in enumerate(segments(batch, width, keys - width, vocabulary))
    ]
    plan = Plan(Work.DECODE, members, rows=batch, width=width, extends=True)
    head.draft(plan, list(range(batch)))
    forward.run(plan, forward.lay_out(plan), None, poisoned=False)
    graphs = {
        f"extend and {DRAFTS} drafts": head.graphs[batch].draft,
        f"verify {width}": forward.graphs[batch, width].graph,
        "keep": head.graphs[batch].keep,
    }
    found = {name: median(timed(graph)) for name, graph in graphs.items()}
    parts = ", ".join(f"{name} {ms:.3f}" for name, ms in found.items())
    print(f"batch {batch:4}: {sum(found.values()):7.3f} ms a cycle: {parts}", flush=True)
    began = time.perf_counter()
    for _ in range(20):
        head.draft(plan, list(range(batch)))
        forward.run(plan, forward.lay_out(plan), head.drafts[:batch], poisoned=False)
        head.keep(width)
    host = (time.perf_counter() - began) / 20
    torch.cuda.synchronize()
    whole = (time.perf_counter() - began) / 20
    print(f"  20 in a row: {whole * 1e3:.3f} ms each, {host * 1e3:.3f} ms of it to launch them")


def print_kernels(graph: torch.cuda.CUDAGraph, batch: int, steps: int = 3) -> None:
    """Print the kernels of a step by time."""
    with torch.profiler.profile(activities=[torch.profiler.ProfilerActivity.CUDA]) as profile:
        for _ in range(steps):
            graph.replay()
        torch.cuda.synchronize()
    found: dict[str, list[float]] = defaultdict(list)
    for event in profile.events():
        if event.device_time_total:
            found[event.name].append(event.device_time_total)
    total = sum(map(sum, found.values())) / steps
    launches = sum(map(len, found.values())) // steps
    print(f"batch {batch}: {total / 1e3:.3f} ms in kernels, {launches} launches")
    for name, times in sorted(found.items(), key=lambda item: -sum(item[1]))[:16]:
        each = sum(times) / len(times)
        print(f"  {sum(times) / steps:8.1f} us  {len(times) // steps:4} x {each:7.2f}  {name[:90]}")


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--config", type=Path, default=CONFIG)
    parser.add_argument("--layers", type=int)
    parser.add_argument("--batch", type=int, nargs="*", default=[1, 8, 32, 128])
    parser.add_argument("--keys", type=int, default=256)
    parser.add_argument("--kernels", action="store_true")
    parser.add_argument("--prefill", action="store_true")
    parser.add_argument("--head", action="store_true")
    args = parser.parse_args()
    if max(args.batch, default=0) * (-(-args.keys // PAGE)) > PAGES or args.keys > CONTEXT:
        parser.error(f"there is room for {PAGES * PAGE} keys, and for {CONTEXT} of a sequence")
    raw = json.loads(args.config.read_text())
    if args.layers:
        raw["num_hidden_layers"] = args.layers
    config = parse_config(raw)
    began = time.perf_counter()
    with torch.inference_mode():
        forward = build(config)
        torch.cuda.synchronize()
        print(f"{torch.cuda.get_device_name()}: weights {time.perf_counter() - began:.1f} s")
        for batch in sorted(args.batch, reverse=True):
            began = time.perf_counter()
            forward.prepare(batch, 1)
            print(f"batch {batch}: captured in {time.perf_counter() - began:.2f} s", flush=True)
        for batch in args.batch:
            times = replays(forward, batch, args.keys, config.vocab_size)
            print(f"batch {batch:4}: {median(times):7.3f} ms a step", flush=True)
        if args.kernels:
            for batch in args.batch:
                print_kernels(forward.graphs[batch, 1].graph, batch)
        if args.head:
            verifies, head = build_head(config, forward, max(args.batch))
            for batch in sorted(args.batch, reverse=True):
                print_cycle(verifies, head, batch, args.keys, config.vocab_size)
                if args.kernels:
                    print_kernels(head.graphs[batch].draft, batch)
        if args.prefill:
            chunks = segments(4, 2048, 0, config.vocab_size)
            plan = Plan(Work.PREFILL, chunks)
            times = []
            for _ in range(5):
                torch.cuda.synchronize()
                began = time.perf_counter()
                for _ in range(2):
                    forward(plan, poisoned=False)
                torch.cuda.synchronize()
                times.append(time.perf_counter() - began)
            print(f"prefill: {16384 / median(times):,.0f} tok/s")


if __name__ == "__main__":
    main()
