"""Check and time the kernels of the attention side and of sampling on one GPU.

`python benchmarks/kernels_attention.py [--out FILE]`, from the repository root, on an otherwise
idle GPU. Shape: DeepSeek-V2-Lite in bf16. First each kernel is held against float32 on fresh random
inputs, into poisoned outputs; then it is timed as one CUDA graph replays it over weights larger
than the L2 cache. It prints a table of microseconds, GB/s and the share of the measured copy
bandwidth; of the decode's divisions it prints the rule's and the best. Most of its time goes into
compiling; parts that would start after --seconds are left out and named.
"""

from __future__ import annotations

import argparse
import json
import sys
import time
import traceback
from collections.abc import Callable, Iterable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import asdict, dataclass, field
from functools import partial
from pathlib import Path
from typing import Any

import torch
import triton

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from benchmarks.bandwidth import copy_bandwidth
from panel.kernels.arrivals import arrival_counts
from panel.kernels.latent_decode import Division, Paging, latent_decode, latent_decode_reference
from panel.kernels.latent_prepare import latent_prepare, latent_prepare_reference
from panel.kernels.latent_together import QUERIES, ROWS, latent_together
from panel.kernels.norm import rms_norm, rms_norm_reference
from panel.kernels.sampling import Draws, sample_tokens, sample_tokens_reference
from panel.kernels.sampling_filter import Filters
from panel.kernels.timing import microseconds
from panel.server.cuda.linear import linear
from panel.server.norm import RMSNorm

HIDDEN, HEADS, LATENT, ROPE, NOPE, V = 2048, 16, 512, 64, 128, 128
LAYERS, VOCABULARY, PAGE = 27, 102400, 64
QUERY = HEADS * (NOPE + ROPE)
DOWN = QUERY + LATENT + ROPE
GPU = torch.device("cuda")


@dataclass
class Report:
    """What is known so far."""

    deadline: float
    copy: float = 1.0
    """Bytes a second, read and written."""
    lines: list[dict[str, Any]] = field(default_factory=list)
    failed: list[str] = field(default_factory=list)

    def part(self, work: Callable[[Report], None]) -> None:
        """Do a part; a failure is reported and the next part goes on."""
        if time.monotonic() > self.deadline:
            print(f"-- {work.__name__}: left out, no time", flush=True)
            self.failed.append(f"{work.__name__}: no time")
            return
        began = time.monotonic()
        print(f"-- {work.__name__}", flush=True)
        try:
            work(self)
        except Exception:
            traceback.print_exc()
            self.failed.append(f"{work.__name__}: {traceback.format_exc(limit=0).splitlines()[-1]}")
        print(f"   {time.monotonic() - began:.1f} s", flush=True)

    def end(self) -> int:
        """Print what failed; return the exit code."""
        for failure in self.failed:
            print(f"FAILED {failure}", flush=True)
        return 1 if self.failed else 0

    def check(
        self, name: str, ours: torch.Tensor, wanted: torch.Tensor, most: float = 1e-2
    ) -> None:
        """Compare with a reference; NaN never passes."""
        error = float((ours.double() - wanted.double()).norm() / wanted.double().norm())
        good = error < most
        print(f"{'ok  ' if good else 'BAD '} {name:46} error {error:.1e}", flush=True)
        if not good:
            self.failed.append(f"{name}: error {error:.1e}")

    def timed(self, name: str, spent: float, size: float, note: str = "") -> None:
        """Print one line; `size` in bytes, `spent` in microseconds."""
        rate = size / spent * 1e6
        print(
            f"{name:44}{spent:9.2f} us {rate / 1e9:7.0f} GB/s {rate / self.copy:6.0%}  {note}",
            flush=True,
        )
        self.lines.append({"name": name, "us": round(spent, 2), "bytes": size, "note": note})


def rand(*shape: int, scale: float = 1.0, dtype: torch.dtype = torch.bfloat16) -> torch.Tensor:
    return torch.randn(shape, device=GPU, dtype=dtype) * scale


def poisoned(*shape: int, dtype: torch.dtype = torch.bfloat16) -> torch.Tensor:
    return torch.full(shape, float("nan"), device=GPU, dtype=dtype)


def norm_of(width: int) -> tuple[torch.Tensor, torch.Tensor]:
    gain = (1 + rand(width, scale=0.1)) * width**0.5
    return gain, torch.tensor((width * 1e-6) ** 0.5, device=GPU, dtype=torch.bfloat16)


def projection(depth: int, columns: int) -> torch.Tensor:
    """Return a weight [depth, columns], contiguous as the engine's loader makes it."""
    return rand(depth, columns, scale=depth**-0.5)


def up_projection(layout: str = "columns", heads: int = HEADS) -> torch.Tensor:
    """Return the values' up-projection, [heads, latent, v]."""
    if layout == "columns":
        return rand(heads, LATENT, V, scale=LATENT**-0.5)
    return rand(heads, V, LATENT, scale=LATENT**-0.5).transpose(1, 2)


def rotation() -> torch.Tensor:
    angles = torch.rand(8192, ROPE // 2, device=GPU) * 6
    return torch.view_as_real(torch.polar(torch.ones_like(angles), angles)).flatten(1).contiguous()


def paging(sequences: int, length: int) -> Paging:
    pages = -(-length // PAGE)
    table = 1 + torch.randperm(sequences * pages, device=GPU).int().view(sequences, pages)
    lengths = torch.full((sequences,), length, device=GPU, dtype=torch.int32)
    return Paging(table, lengths, PAGE)


def cache_for(paged: Paging) -> torch.Tensor:
    return rand((paged.table.numel() + 1) * PAGE, LATENT + ROPE)


def peak(report: Report) -> None:
    report.copy = copy_bandwidth(GPU)
    print(f"copy {report.copy / 1e12:.2f} TB/s, read and written", flush=True)


def at_once(work: Callable[[Any], object], cases: Iterable[Any]) -> None:
    """Do the cases in threads: compiling is most of it."""
    with ThreadPoolExecutor(12) as pool:
        list(pool.map(work, cases))


def check_attention(report: Report) -> None:
    turns = rotation()
    for rows in (1, 5, 32, 70):
        projected, norm = rand(rows, DOWN), norm_of(LATENT)
        query = projected[:, :QUERY].unflatten(1, (HEADS, -1))
        entry = projected[:, QUERY:]
        places = torch.randint(8192, (rows,), device=GPU)
        slots = torch.randperm(1000, device=GPU)[:rows]
        key_up = rand(HEADS, NOPE, LATENT, scale=NOPE**-0.5)
        caches = [rand(1000, LATENT + ROPE)]
        caches.append(caches[0].clone())
        common = (query, entry, turns, places, norm, slots)
        wanted = latent_prepare_reference(*common, caches[0], key_up)
        out = poisoned(rows, HEADS, LATENT + ROPE)
        latent_prepare(*common, caches[1], key_up, out)
        report.check(f"prepare, {rows} rows", out, wanted)
        report.check(f"prepare, {rows} rows, cache", caches[1], caches[0])
    cases = (
        (1, 1, 16, 257),
        (1, 1, 16, 9000),
        (1, 2, 16, 257),
        (1, 2, 16, 9000),
        (1, 4, 16, 1000),
        (1, 5, 7, 333),
        (3, 1, 16, 300),
        (4, 4, 16, 1000),
        (9, 2, 16, 333),
        (40, 1, 16, 200),
        (130, 1, 16, 400),
        (2, 1, 128, 700),
        (2, 8, 4, 100),
    )
    at_once(lambda case: check_one_decode(report, *case), cases)
    hidden, norm = rand(7, HIDDEN), norm_of(HIDDEN)
    normed = rms_norm(hidden, *norm, out=poisoned(7, HIDDEN))
    report.check("norm", normed, rms_norm_reference(hidden, *norm))


def check_one_decode(report: Report, sequences: int, width: int, heads: int, length: int) -> None:
    paged = paging(sequences, length)
    paged.lengths.copy_(torch.randint(width, length + 1, (sequences,), device=GPU))
    paged.lengths[-1] = length
    cache = cache_for(paged)
    query = rand(sequences * width, heads, LATENT + ROPE, scale=(LATENT + ROPE) ** -0.5 * 3)
    for up in (up_projection("columns", heads), up_projection("depth", heads), None):
        wanted = latent_decode_reference(query, cache, LATENT, paged, up)
        out = poisoned(*wanted.shape)
        latent_decode(query, cache, LATENT, paged, up, out=out)
        kind = "none" if up is None else "columns" if up.stride(2) == 1 else "depth"
        name = f"decode {sequences}x{width}, {heads} heads, {length} keys, up {kind}"
        report.check(name, out, wanted)
        if up is not None and sequences == 1 and width * heads <= QUERIES:
            counter, out = torch.zeros(1, dtype=torch.int32, device=GPU), poisoned(*wanted.shape)
            latent_together(query, cache, LATENT, paged, up, counter, out=out)
            report.check(f"{name}, in one launch", out, wanted)


def check_sampling(report: Report) -> None:
    for rows in (1, 8, 40):
        for dtype in (torch.float32, torch.bfloat16):
            for filtered in (False, True):
                logits = rand(rows, VOCABULARY, scale=3, dtype=dtype)
                draws = draws_of(rows, filtered)
                draws.temperature[::3] = 0
                tokens, finite = sample_tokens(logits, draws)
                host = Draws(draws.temperature.cpu(), draws.uniform.cpu(), on_host(draws.filters))
                wanted, _ = sample_tokens_reference(logits.cpu(), host)
                alike = float((tokens.cpu() == wanted).float().mean())
                good = alike >= (1 if rows < 8 else 0.9) and bool(finite.all())
                name = f"sampling {rows} rows {dtype}, filters {filtered}"
                print(f"{'ok  ' if good else 'BAD '} {name:60} alike {alike:.0%}", flush=True)
                if not good:
                    report.failed.append(f"{name}: {alike:.0%} alike")
    logits[1, VOCABULARY * 3 // 4] = float("nan")
    logits[2, 5] = float("inf")
    tokens, finite = sample_tokens(logits, draws)
    if finite.tolist() != [n not in (1, 2) for n in range(rows)] or tokens.max() >= VOCABULARY:
        report.failed.append("sampling: rows that are not finite are not named")


def draws_of(rows: int, filtered: bool) -> Draws:
    uniform = torch.rand(rows, dtype=torch.float64, device=GPU)
    temperature = torch.full((rows,), 0.8, device=GPU)
    if not filtered:
        return Draws(temperature, uniform)
    top_k = torch.randint(0, 200, (rows,), device=GPU, dtype=torch.int32)
    top_p = torch.rand(rows, device=GPU) * 0.5 + 0.5
    min_p = torch.rand(rows, device=GPU) * 0.1
    return Draws(temperature, uniform, Filters(top_k, top_p, min_p))


def on_host(filters: Filters | None) -> Filters | None:
    if filters is None:
        return None
    limits = (filters.top_k, filters.top_p, filters.min_p)
    return Filters(*(None if limit is None else limit.cpu() for limit in limits))


def short(division: Division) -> str:
    return " ".join(f"{name} {value}" for name, value in asdict(division).items())


def sweep_decode(report: Report) -> None:
    """Time divisions of `latent_decode`, its combining included, over the caches of all layers."""
    for sequences, length in ((1, 256), (1, 8192), (8, 256), (32, 256), (32, 4096), (128, 256)):
        sweep_one_decode(report, sequences, length)


def candidates(rule: Division) -> list[Division]:
    """Return the rule's division and its neighbours."""
    pieces = (rule.pieces, min(64, rule.pieces * 2), max(1, rule.pieces // 2))
    shapes = ((64, 8, 3), (64, 8, 2), (32, 8, 3), (32, 4, 4))
    return list(dict.fromkeys(Division(n, *shape) for n in pieces for shape in shapes))


def sweep_one_decode(report: Report, sequences: int, length: int) -> None:
    paged = paging(sequences, length)
    caches = [cache_for(paged) for _ in range(LAYERS)]
    ups = [up_projection() for _ in caches]
    query = rand(sequences, HEADS, LATENT + ROPE, scale=(LATENT + ROPE) ** -0.5)
    size = sequences * length * (LATENT + ROPE) * 2 + ups[0].nbytes
    rule = Division.rule(sequences, HEADS)

    def call(division: Division, cache: torch.Tensor, up: torch.Tensor) -> torch.Tensor:
        return latent_decode(query, cache, LATENT, paged, up, division=division)

    tried = dict.fromkeys(candidates(rule), 0.0)
    compiled = {(d.keys, d.warps, d.stages, d.pieces == 1): d for d in tried}
    at_once(lambda each: call(each, caches[0], ups[0]), compiled.values())
    for division in tried:
        calls = [partial(call, division, *pair) for pair in zip(caches, ups, strict=True)]
        tried[division] = microseconds(calls, replays=3)
    label = f"decode {sequences} sequences of {length}"
    report.timed(f"{label}, by rule", tried[rule], size, short(rule))
    order = sorted((spent, short(d)) for d, spent in tried.items())
    report.timed(f"{label}, best", order[0][0], size, order[0][1])
    for spent, name in order[1:4]:
        print(f"{'':44}{spent:9.2f} us  {name}", flush=True)


def sweep_together(report: Report) -> None:
    """Time one sequence's prepare and attention: attend and combine apart, and in one launch."""
    for width in (1, 2, 4):
        rule = Division.rule(width * HEADS // ROWS, ROWS)
        shapes = ((64, 8, 3), (64, 8, 2), (32, 8, 3), (32, 8, 2))
        divisions = [Division(rule.pieces, *shape) for shape in shapes]
        tried = [(each, columns) for each in (rule, *divisions) for columns in (32, 16)]
        for length in (256, 1024, 4096, 16384):
            sweep_one_together(report, list(dict.fromkeys(tried)), width, length)


def sweep_one_together(
    report: Report, tried: list[tuple[Division, int]], width: int, length: int
) -> None:
    """Time `width` tokens; the first of `tried` is what `latent_together` does by itself."""
    paged, turns, norm = paging(1, length), rotation(), norm_of(LATENT)
    caches = [cache_for(paged) for _ in range(LAYERS)]
    key_ups = [rand(HEADS, NOPE, LATENT, scale=NOPE**-0.5) for _ in caches]
    value_ups = [up_projection() for _ in caches]
    projected, key = rand(width, DOWN), torch.arange(length - width, length, device=GPU)
    heads, entry = projected[:, :QUERY].unflatten(1, (HEADS, -1)), projected[:, QUERY:]
    places, slots = key % 8192, paged.table[0, key // PAGE].long() * PAGE + key % PAGE

    def call(way: tuple[Division, int] | None, layer: int) -> torch.Tensor:
        cache, up = caches[layer], value_ups[layer]
        counter = None if way is None else torch.empty(1, dtype=torch.int32, device=GPU)
        query = latent_prepare(
            heads, entry, turns, places, norm, slots, cache, key_ups[layer], counter=counter
        )
        if way is None or counter is None:
            return latent_decode(query, cache, LATENT, paged, up)
        division, columns = way
        return latent_together(
            query, cache, LATENT, paged, up, counter, division=division, columns=columns
        )

    size = length * (LATENT + ROPE) * 2 + key_ups[0].nbytes + value_ups[0].nbytes
    at_once(lambda way: call(way, 0), [None, *tried])
    spent = {
        way: microseconds([partial(call, way, layer) for layer in range(LAYERS)])
        for way in (None, *tried)
    }
    label = f"prepare, attention {width} x {length}"
    report.timed(f"{label}, apart", spent[None], size)
    report.timed(f"{label}, together", spent[tried[0]], size, short(tried[0][0]))
    best = sorted(((spent[way], way) for way in tried), key=lambda each: each[0])
    for taken, (division, columns) in best[:3]:
        print(f"{'':44}{taken:9.2f} us  {short(division)} columns {columns}", flush=True)


def time_small(report: Report) -> None:
    turns = rotation()
    for rows in (1, 8, 32, 128):
        projected, norm = rand(rows, DOWN), norm_of(LATENT)
        query, entry = projected[:, :QUERY].unflatten(1, (HEADS, -1)), projected[:, QUERY:]
        places, slots = torch.arange(rows, device=GPU), torch.arange(rows, device=GPU)
        cache = rand(1000, LATENT + ROPE)
        ups = [rand(HEADS, NOPE, LATENT) for _ in range(80)]
        calls = [
            partial(latent_prepare, query, entry, turns, places, norm, slots, cache, up)
            for up in ups
        ]
        report.timed(f"prepare {rows} rows", microseconds(calls), ups[0].nbytes)
        hidden, gain = rand(rows, HIDDEN), norm_of(HIDDEN)
        calls = [partial(rms_norm, hidden, *gain)] * 50
        report.timed(f"norm {rows} rows", microseconds(calls), hidden.nbytes * 2)
        logits = rand(rows, VOCABULARY)
        for filtered in (False, True):
            draws = draws_of(rows, filtered)
            calls = [partial(sample_tokens, logits, draws)] * 10
            note = "top-k, top-p, min-p" if filtered else "plain"
            report.timed(f"sampling {rows} rows {note}", microseconds(calls), logits.nbytes)
        calls = [partial(torch.argmax, logits, 1)] * 10
        report.timed(f"sampling {rows} rows torch.argmax", microseconds(calls), logits.nbytes)


@dataclass(frozen=True)
class Layer:
    """The weights of a layer's attention."""

    norm: RMSNorm
    down: torch.Tensor
    latent_norm: tuple[torch.Tensor, torch.Tensor]
    key_up: torch.Tensor
    value_up: torch.Tensor
    out: torch.Tensor


def time_attention(report: Report) -> None:
    """Time the attention side of all layers in a row, launched as the engine does."""
    layers = [
        Layer(
            RMSNorm(*norm_of(HIDDEN)),
            projection(HIDDEN, DOWN),
            norm_of(LATENT),
            rand(HEADS, NOPE, LATENT, scale=NOPE**-0.5),
            up_projection(),
            projection(HEADS * V, HIDDEN),
        )
        for _ in range(LAYERS)
    ]
    for rows, length in ((1, 256), (1, 8192), (8, 256), (32, 256), (128, 256)):
        time_layers(report, layers, rows, length)


def time_layers(report: Report, layers: list[Layer], rows: int, length: int) -> None:
    turns = rotation()
    paged = paging(rows, length)
    caches = [cache_for(paged) for _ in layers]
    hidden = rand(rows, HIDDEN)
    places = torch.full((rows,), length - 1, device=GPU)
    slots = paged.table[:, (length - 1) // PAGE].long() * PAGE + (length - 1) % PAGE

    def attend(layer: Layer, cache: torch.Tensor) -> None:
        projected = linear(hidden, layer.down, norm=layer.norm)
        counter = torch.empty(1, dtype=torch.int32, device=GPU) if rows == 1 else None
        query = latent_prepare(
            projected[:, :QUERY].unflatten(1, (HEADS, -1)),
            projected[:, QUERY:],
            turns,
            places,
            layer.latent_norm,
            slots,
            cache,
            layer.key_up,
            counter=counter,
        )
        if counter is None:
            mixed = latent_decode(query, cache, LATENT, paged, layer.value_up)
        else:
            mixed = latent_together(query, cache, LATENT, paged, layer.value_up, counter)
        linear(mixed, layer.out, residual=hidden)

    size = rows * length * (LATENT + ROPE) * 2 + sum(
        weight.nbytes
        for weight in (layers[0].down, layers[0].key_up, layers[0].value_up, layers[0].out)
    )
    calls = [partial(attend, *pair) for pair in zip(layers, caches, strict=True)]
    report.timed(f"attention, a layer, {rows} x {length}", microseconds(calls), size)


PARTS = (
    peak,
    check_attention,
    check_sampling,
    time_small,
    sweep_decode,
    time_attention,
    sweep_together,
)


def main() -> int:
    """Do all parts; 1 where a check failed or a part did."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--out", type=Path, help="where the results go, as JSON")
    parser.add_argument("--seconds", type=float, default=45, help="start nothing after these")
    parser.add_argument("--only", help="parts whose names hold this")
    options = parser.parse_args()
    torch.manual_seed(int(time.time()))
    name = torch.cuda.get_device_name()
    print(f"{name}, torch {torch.__version__}, triton {triton.__version__}", flush=True)
    arrival_counts(GPU)
    report = Report(time.monotonic() + options.seconds)
    for part in PARTS:
        if part is peak or not options.only or options.only in part.__name__:
            report.part(part)
    if options.out:
        found = {name: value for name, value in asdict(report).items() if name != "deadline"}
        options.out.write_text(json.dumps({"device": name, **found}, indent=1))
    return report.end()


if __name__ == "__main__":
    sys.exit(main())
