"""A rank's way from the fork to readiness, phase by phase."""

from __future__ import annotations

import logging
import time
from dataclasses import dataclass, replace
from random import Random

import psutil
import torch

from panel.server import assembly, collectives, kv_cache
from panel.server.collectives import Measured
from panel.server.draft.assembly import followed, load_head, pool_bytes, with_head
from panel.server.draft.forward import EagleForward
from panel.server.flight import DeviceSampler
from panel.server.forward import Forward, TorchForward
from panel.server.graphs import bucket_table
from panel.server.life import Life
from panel.server.loader import count_bytes, shared_expert_bytes
from panel.server.memory import Category
from panel.server.memory_report import as_event, describe
from panel.server.messages import Generate, RankMemory
from panel.server.phases import Phase
from panel.server.place import Place
from panel.server.plan import Plan, blank_decode, blank_prefill
from panel.server.roster import PeerLostError
from panel.server.runner import Runner
from panel.server.sequence import Sequence
from panel.server.sizes import draft_tokens, max_context, simulated_rate
from panel.server.sums import make_sums

log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class Ready:
    """What a rank has once it is ready."""

    runner: Runner
    pages: int
    """Pages of KV cache that may be handed out."""
    buckets: tuple[int, ...]
    memory: list[RankMemory]
    """Of all ranks, by rank."""
    collectives: Measured
    head: EagleForward | None
    """The runner's forward, where it drafts."""


def start(place: Place, life: Life) -> Ready:
    """Go through the phases from `dist_init` to `ready`."""
    options, shared, shard = place.options, place.shared, place.shard
    life.enter(Phase.DIST_INIT, f"meeting {shard.tp_size} ranks")
    before = psutil.Process().memory_info().rss
    shared.barrier.wait(shared.roster)
    collectives.join_group(place)
    life.enter(Phase.WEIGHTS, f"loading {place.folder}, load format {options.load_format}")
    source = assembly.weight_source(place)
    exchange, exchange_bytes = collectives.make_exchange(place)
    load = assembly.load_counts(place)
    model = assembly.assemble(place, source, exchange, load, life.progress)
    paths = f"sums {place.demand.sum_path}, all-to-all {place.demand.exchange_path}"
    life.enter(Phase.WORKSPACE, f"buffers and collectives: {paths}")
    reduction, buffer_bytes, measured = make_sums(place)
    measured += collectives.measure_exchange(place, exchange)
    rebalancer, moving_bytes = assembly.make_rebalancer(place, model, load)
    life.enter(Phase.DRAFT, _speculation(place))
    head = load_head(place, model.embedding)
    life.enter(Phase.KV_CACHE, "KV cache")
    pages, cache = kv_cache.allocate(place)
    logits = shared.logits(place.config.vocab_size)
    owner = shard.rank if shard.dp_attention else None
    plain = TorchForward(model, cache, reduction, options.page_size, owner)
    forward: Forward = plain
    device_sampler: DeviceSampler | None = None
    with_drafts: EagleForward | None = None
    if head is not None:
        with_drafts, device_sampler = with_head(place, plain, head, pages)
        forward = with_drafts
    elif place.draft is not None:
        forward, device_sampler = followed(place, plain)
    else:
        forward, device_sampler = _by_kernels(place, plain) or (plain, None)
    runner = Runner(
        forward=forward,
        device_sampler=device_sampler,
        quiet=None if with_drafts is None else replace(with_drafts, tells=False),
        logits=logits,
        columns=shard.part(place.config.vocab_size),
        rebalancer=rebalancer,
        interval=options.eplb_interval,
        life=life,
    )
    buckets = bucket_table(options)
    life.enter(Phase.CAPTURE, f"decode batch sizes {list(buckets) or 'off'}")
    graphs = _prepare_buckets(runner, buckets, draft_tokens(options), life)
    life.enter(Phase.WARMUP, "one prefill step")
    most = min(options.chunked_prefill_size, max_context(options, place.config))
    _run_alone(runner, blank_prefill(most, options.page_size))
    _sample_alone(runner, shard.rank)
    runner.begin()
    shared_experts = shared_expert_bytes(model)
    buffers = buffer_bytes + exchange_bytes + moving_bytes
    memory = {
        Category.WEIGHTS: count_bytes(model) - shared_experts,
        Category.SHARED_EXPERTS: shared_experts,
        Category.WORKSPACE: buffers + logits.nbytes // shard.tp_size,
        Category.DRAFT: 0 if head is None else head.nbytes,
        Category.KV_CACHE: cache.nbytes + (pool_bytes(with_drafts) if with_drafts else 0),
        Category.GRAPHS: graphs,
    }
    reports = _report_memory(place, memory, source.bytes_read, before)
    life.enter(Phase.READY, "ready")
    return Ready(runner, pages, buckets, reports, measured, with_drafts)


def _by_kernels(place: Place, plain: TorchForward) -> tuple[Forward, DeviceSampler] | None:
    """Return the same steps by kernels and what samples there; None where there are none."""
    if place.device.type != "cuda":
        return None
    # Imported where there is a GPU only: triton has no wheels for some CPU machines.
    from panel.server.cuda.assembly import with_kernels

    return with_kernels(place, plain)


def _speculation(place: Place) -> str:
    text = f"speculation {place.options.speculative_algorithm}"
    if place.draft is None:
        text += ", no draft weights"
    if (rate := simulated_rate(place.options)) is not None:
        text += f"; acceptance is SIMULATED at {rate:g}: the text means nothing"
    return text


def _report_memory(
    place: Place, measured: dict[Category, int], weights_read: int, before: int
) -> list[RankMemory]:
    """Enter, log and write this rank's table; return those of all ranks.

    `before` is what was resident before the first category was allocated.
    """
    shared = place.shared
    other = before
    if place.device.type == "cuda":
        free, total = torch.cuda.mem_get_info()
        other = total - free - sum(measured.values())
    predicted = place.demand.table()
    rank = place.shard.rank
    mine = shared.memory.put(rank, predicted, measured | {Category.OTHER: other}, weights_read)
    log.info("%s", describe(mine))
    place.events.write("memory", rank=rank, **as_event(mine))
    shared.barrier.wait(shared.roster)
    return shared.memory.all()


def _prepare_buckets(runner: Runner, buckets: tuple[int, ...], draft: int, life: Life) -> int:
    """Prepare each batch size, largest first, with and without drafts.

    Returns the bytes of GPU memory that they keep.
    """
    before = held = _reserved()
    for done, size in enumerate(reversed(buckets)):
        life.progress(done, len(buckets), size)
        begun, earlier = time.perf_counter(), held
        for width in sorted({1, 1 + draft}):
            try:
                runner.forward.prepare(size, width)
            except PeerLostError:
                raise
            except Exception as error:
                raise RuntimeError(f"batch size {size}: {_innermost(error)}") from error
        took, held = (time.perf_counter() - begun) * 1e3, _reserved()
        more = (held - earlier) / 2**20
        of_gpu = f", {more:.1f} MiB of the GPU" if torch.cuda.is_initialized() else ""
        log.info("batch size %d: prepared in %.1f ms%s", size, took, of_gpu)
    life.progress(len(buckets), len(buckets))
    return held - before


def _reserved() -> int:
    """Return the bytes of the GPU that torch cannot do without; 0 without a GPU."""
    if not torch.cuda.is_initialized():
        return 0
    # Each capture empties the cache too: what was cached before it would count as given back.
    torch.cuda.empty_cache()
    return torch.cuda.memory_reserved()


def _innermost(error: BaseException) -> BaseException:
    """Return the first link of a chain of exceptions."""
    cause = error.__cause__ or error.__context__
    return error if cause is None else _innermost(cause)


def _run_alone(runner: Runner, plan: Plan) -> None:
    begun = time.perf_counter()
    runner(plan)
    tokens = len(plan.segments[0].tokens)
    log.info("prefill of %d tokens: %.1f ms", tokens, (time.perf_counter() - begun) * 1e3)


def _sample_alone(runner: Runner, rank: int) -> None:
    """Let the device sample a token: no request has to wait until kernels and ranks are ready."""
    plan, sequence = blank_decode(1, 1), Sequence(Generate("warmup", [0], 1), 2, Random(0))
    if not runner.serves(plan, [sequence]):
        return
    if rank:
        runner.join(plan)
    else:
        runner.launch(plan, [sequence]).land()
