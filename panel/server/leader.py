"""Rank 0 decides each step, runs its own part of it, samples, and talks to the front end."""

from __future__ import annotations

import itertools
import logging
import select
import time
from collections.abc import Callable
from dataclasses import dataclass
from random import Random

import torch
from msgspec import structs

from panel.server.cache import Cache
from panel.server.channel import Channel
from panel.server.flight import Flight, Landed, chosen
from panel.server.life import Life
from panel.server.messages import (
    Abort,
    Drain,
    Flush,
    Flushed,
    Generate,
    Rebalance,
    Started,
    Step,
    Stopped,
    ToEngine,
    Tokens,
)
from panel.server.meter import Meter
from panel.server.nccl import describe_nccl
from panel.server.options import Options
from panel.server.pages import PageAllocator
from panel.server.phases import Phase
from panel.server.place import Place
from panel.server.plan import Plan, Work, encode_plan, with_sampled
from panel.server.roster import PeerLostError
from panel.server.schedule import Choice, Limits, Scheduled
from panel.server.scheduler import Scheduler
from panel.server.score import score_prompts
from panel.server.sequence import Sequence
from panel.server.simulated import acceptance, following, sampling
from panel.server.sizes import draft_tokens, max_context
from panel.server.speculative import NgramIndex
from panel.server.startup import Ready
from panel.server.trace import trace

log = logging.getLogger(__name__)

IDLE_SECONDS = 0.5
"""Time between two idle ticks, by which every rank proves that it is alive."""


def lead(
    place: Place, ready: Ready, life: Life, channel: Channel, stop_asked: Callable[[], bool]
) -> None:
    """Serve until asked to stop, then drain; at the end every follower has the stop plan."""
    try:
        _Leader(place, ready, life, channel, stop_asked).run()
    except PeerLostError as error:
        channel.send(Stopped(str(error)))
        raise


@dataclass(frozen=True, slots=True)
class _UnderWay:
    """A step that the device computes while the next one is planned."""

    scheduled: Scheduled
    flight: Flight
    begun: float


class _Leader:
    def __init__(
        self,
        place: Place,
        ready: Ready,
        life: Life,
        channel: Channel,
        stop_asked: Callable[[], bool],
    ) -> None:
        options = place.options
        self._options = options
        self._shared = place.shared
        self._roster = place.shared.roster
        self._rendezvous = place.shared.rendezvous
        self._runner = ready.runner
        self._logits = ready.runner.logits.numpy()
        self._drafts = None if ready.head is None else ready.head.told
        accepted = acceptance(options)
        self._sample, self._follow = sampling(accepted), following(accepted)
        # A draft can only follow tokens that are known.
        self._ahead = draft_tokens(options) == 0
        self._life = life
        self._channel = channel
        self._stop_asked = stop_asked
        self._caches = [
            Cache(
                PageAllocator(ready.pages, options.page_size),
                share=not options.disable_prefix_cache,
                owner=owner,
            )
            for owner in range(options.tp_size if options.dp_attention else 1)
        ]
        limits = Limits(
            vocab_size=place.config.vocab_size,
            max_context=max_context(options, place.config),
            max_running=options.max_running_requests,
            chunk=options.chunked_prefill_size,
            buckets=ready.buckets,
            draft_tokens=draft_tokens(options),
            head=ready.head is not None,
            adaptive=options.speculative_adaptive,
        )
        self._scheduler = Scheduler(limits, self._caches, sequence_maker(options))
        self._meter = Meter(self._scheduler, self._caches, ready, place.shared.barrier, options)
        self._news: list[Tokens] = []
        self._under_way: _UnderWay | None = None
        self._drafted = False
        """The step before had drafts."""
        self._sampled: list[int] = []
        """What the step that landed last has sampled."""
        self._suspect: Plan | None = None
        """A step that landed with logits that are not finite, until it is traced."""
        self._landed = 0.0
        self._drain_until: float | None = None
        self._poll = select.poll()
        self._poll.register(channel.fileno(), select.POLLIN)
        for descriptor in self._roster.pidfds().values():
            self._poll.register(descriptor, select.POLLIN)
        channel.send(
            Started(
                max_total_tokens=ready.pages * options.page_size,
                max_context=limits.max_context,
                buckets=list(ready.buckets),
                phases=dict(life.seconds),
                memory=ready.memory,
                collectives=ready.collectives,
                nccl=describe_nccl() if place.device.type == "cuda" else None,
            )
        )

    def run(self) -> None:
        self._rendezvous.gather(self._roster)
        while not self._drained():
            self._listen()
            self._step()
        self._land()
        self._news += self._scheduler.abort(None)
        self._tell()
        self._channel.send(Stopped("asked to stop"))
        self._release(Plan(Work.STOP, draining=True))
        if problems := self._scheduler.audit():
            log.error("KV cache: %s", "; ".join(problems))
        else:
            log.info("KV cache: every page is accounted for")

    def _drained(self) -> bool:
        if self._drain_until is None and self._stop_asked():
            self._drain(self._options.drain_seconds)
        if self._drain_until is None:
            return False
        return self._scheduler.idle or time.monotonic() > self._drain_until

    def _drain(self, seconds: float) -> None:
        self._drain_until = time.monotonic() + seconds
        running = len(self._scheduler.running) + len(self._scheduler.waiting)
        self._life.enter(Phase.DRAINING, f"draining {running} requests, at most {seconds:g} s")

    def _listen(self) -> None:
        """Take in what the front end says; without work, wait for it up to an idle tick."""
        idle = self._scheduler.idle
        if idle:
            self._tell()
        wanted = select.POLLIN | (select.POLLOUT if self._channel.pending else 0)
        self._poll.modify(self._channel.fileno(), wanted)
        if self._poll.poll(IDLE_SECONDS * 1e3 if idle else 0):
            self._roster.check(0.0)
            for message in self._channel.receive():
                self._take(message)
        self._channel.flush()

    def _take(self, message: ToEngine) -> None:
        match message:
            case Generate() if self._drain_until is not None:
                stops = Tokens(message.rid, [], finish="error", error="the engine stops")
                self._news.append(stops)
            case Generate():
                refused = self._scheduler.add(message)
                if refused is not None:
                    log.info("request %s refused: %s", refused.rid, refused.error)
                    self._news.append(refused)
            case Abort(rid):
                self._news += self._scheduler.abort(rid)
            case Drain(seconds):
                if self._drain_until is None:
                    self._drain(seconds)
            case Flush():
                tokens = sum(cache.flush() for cache in self._caches)
                log.info("prefix cache flushed: %d tokens", tokens)
                self._channel.send(Flushed(tokens))
            case Rebalance():
                self._rebalance()

    def _rebalance(self) -> None:
        """Let all ranks move their experts between two steps of the model."""
        self._land()
        self._release(Plan(Work.REBALANCE))
        self._life.tick()
        self._runner(Plan(Work.REBALANCE))
        self._rendezvous.gather(self._roster)
        if self._runner.rebalanced is not None:
            self._channel.send(self._runner.rebalanced)

    def _step(self) -> None:
        """Run one step; the news of the one before goes out once it has begun.

        Where the device samples, the step before lands only once this one has begun.
        """
        if self._suspect is not None:
            suspect, self._suspect = self._suspect, None
            self._trace(suspect)
        begun = time.perf_counter()
        scheduled = self._scheduler.next(draining=self._drain_until is not None)
        plan = scheduled.plan
        if self._runner.serves(plan, scheduled.sampled):
            plan = structs.replace(plan, on_device=True)
            scheduled = Scheduled(plan, scheduled.sequences)
        if plan.work is Work.IDLE and self._under_way is not None:
            self._land()
            return
        self._release(plan)
        self._life.tick()
        if plan.work is Work.IDLE:
            self._tell()
            self._rendezvous.gather(self._roster)
            return
        flight = self._runner.launch(plan, scheduled.sampled) if plan.on_device else None
        self._tell()
        if flight is not None and self._ahead:
            self._scheduler.expect(scheduled)
            self._land()
            self._under_way = _UnderWay(scheduled, flight, begun)
            self._rendezvous.gather(self._roster)
            return
        self._land()
        choices = self._run(scheduled) if flight is None else self._wait(scheduled, flight)
        seconds = time.perf_counter() - begun
        # A device that expected one more cycle has first drafted for it.
        if plan.work is Work.DECODE and (flight is None or plan.width > 1 or not self._drafted):
            self._scheduler.drafter.pace.learn(plan.rows, plan.width, seconds)
        self._drafted = plan.width > 1
        if any(choice.error is not None for choice in choices):
            self._trace(plan)
        self._meter.count(plan, seconds)
        self._take_news(self._scheduler.commit(scheduled, choices))

    def _run(self, scheduled: Scheduled) -> list[Choice]:
        """Run a step whose logits are wanted here."""
        plan = scheduled.plan
        self._runner(plan)
        self._rendezvous.gather(self._roster)
        self._news += score_prompts(self._logits, scheduled)
        if self._drafts is not None and plan.work is Work.DECODE and plan.width > 1:
            self._scheduler.drafter.reveal(scheduled.sequences, self._drafts.tolist())
        return self._sample(self._logits, scheduled.sampled, plan.logit_begins)

    def _wait(self, scheduled: Scheduled, flight: Flight) -> list[Choice]:
        """Wait for a step whose tokens the device samples, drafts and all."""
        plan = scheduled.plan
        self._rendezvous.gather(self._roster)
        landed = self._await(flight)
        if self._drafts is not None and plan.width > 1:
            self._scheduler.drafter.reveal(scheduled.sequences, landed.drafts)
        choices = chosen(landed, plan, scheduled.sampled, self._follow)
        if self._drafts is not None and not all(landed.sound) and plan.width > 1:
            # Whoever runs the step again has to find the same drafts.
            self._drafts[: len(landed.drafts), : plan.width - 1] = torch.tensor(landed.drafts)
        return choices

    def _land(self) -> None:
        """Take in the result of the step under way, if there is one."""
        step = self._under_way
        if step is None:
            return
        self._under_way = None
        scheduled, plan, landed = step.scheduled, step.scheduled.plan, self._await(step.flight)
        choices = chosen(landed, plan, scheduled.sampled, self._follow)
        now = time.perf_counter()
        self._meter.count(plan, now - max(step.begun, self._landed))
        self._landed = now
        news = self._scheduler.settle(scheduled, choices)
        if any(item.error is not None for item in news):
            self._suspect = with_sampled(plan, self._sampled)
        self._sampled = landed.tokens
        self._take_news(news)

    def _await(self, flight: Flight) -> Landed:
        """Return what came of a step; `PeerLostError` where a rank is gone that it needs."""
        self._roster.watch(flight.done)
        return flight.land()

    def _take_news(self, news: list[Tokens]) -> None:
        for item in news:
            if item.error is not None:
                log.error("step %d: request %s: %s", self._life.step, item.rid, item.error)
        self._news += news

    def _release(self, plan: Plan) -> None:
        """Hand the followers their next plan, where there are any."""
        if self._options.tp_size > 1:
            self._rendezvous.release(encode_plan(plan))

    def _trace(self, plan: Plan) -> None:
        """Find out which rank the bad logits come from."""
        plan = structs.replace(plan, traced=True, on_device=False)
        self._release(plan)
        self._life.tick()
        words = trace(self._runner, plan, self._shared)
        self._rendezvous.gather(self._roster)
        log.error("step %d: the model's logits are NaN or infinite: %s", self._life.step, words)

    def _tell(self) -> None:
        """Tell the front end the news, and now and then the state of things."""
        if self._news:
            self._channel.send(Step(self._news))
            self._news = []
        if (stats := self._meter.report()) is not None:
            self._channel.send(stats)


def sequence_maker(options: Options) -> Callable[[Generate, int], Sequence]:
    """Return what builds sequences with their own random numbers and n-gram index.

    A request without a seed gets one from the engine's seed and its number since start.
    """
    arrivals = itertools.count()

    def make(request: Generate, limit: int) -> Sequence:
        seed: int | str | None = request.seed
        if seed is None:
            seed = f"{options.seed}:{next(arrivals)}"
        ngrams = None
        if options.speculative_algorithm == "ngram":
            ngrams = NgramIndex(options.speculative_ngram_max, options.speculative_ngram_min)
        drafted = 0 if options.speculative_algorithm == "eagle3" else None
        return Sequence(request, limit, Random(seed), ngrams, drafted=drafted)

    return make
