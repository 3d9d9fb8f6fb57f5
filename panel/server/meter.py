"""How fast the engine is: counts and times of the leader's steps."""

from __future__ import annotations

import logging
import statistics
import time
from collections import Counter, deque
from collections.abc import Iterable, Sequence

from panel.server.cache import Cache
from panel.server.draft.forward import Spent
from panel.server.meeting import Barrier
from panel.server.messages import Stats
from panel.server.options import Options
from panel.server.plan import Plan, Work
from panel.server.scheduler import Scheduler
from panel.server.sizes import simulated_rate
from panel.server.startup import Ready

log = logging.getLogger(__name__)

STATS_SECONDS = 0.1
"""Time between two reports to the front end."""
_WINDOW = 64
"""Decode steps whose median counts as the step time."""


class Meter:
    """Watches the scheduler; writes a log line every `log_interval` decode steps."""

    def __init__(
        self,
        scheduler: Scheduler,
        caches: Sequence[Cache],
        ready: Ready,
        barrier: Barrier,
        options: Options,
    ) -> None:
        self._scheduler = scheduler
        self._caches = caches
        self._runner = ready.runner
        self._spent = Spent() if ready.head is None else ready.head.spent
        self._barrier = barrier
        self._met = (barrier.meetings, barrier.seconds)
        self._collectives: deque[tuple[int, float]] = deque(maxlen=_WINDOW)
        self._simulated = simulated_rate(options)
        self._log_interval = options.decode_log_interval
        self._prefills = 0
        self._decodes: Counter[int] = Counter()
        self._decode_ms: deque[float] = deque(maxlen=_WINDOW)
        self._tokens_logged = 0
        self._logged_at = time.monotonic()
        self._reported_at = 0.0
        self._reported_steps = 0

    def count(self, plan: Plan, seconds: float) -> None:
        """Take in one step of the model."""
        before, self._met = self._met, (self._barrier.meetings, self._barrier.seconds)
        if plan.work is not Work.DECODE:
            self._prefills += 1
            return
        self._decode_ms.append(seconds * 1e3)
        self._collectives.append((self._met[0] - before[0], (self._met[1] - before[1]) * 1e3))
        self._decodes[plan.rows] += 1
        if self._decodes.total() % self._log_interval == 0:
            self._log()

    def report(self) -> Stats | None:
        """Return the state of things, or None where the last report is fresh enough.

        The end of the last sequence is reported at once: after it nothing happens for a while.
        """
        now = time.monotonic()
        ended = self._scheduler.idle and self._steps != self._reported_steps
        if now - self._reported_at < STATS_SECONDS and not ended:
            return None
        self._reported_at = now
        self._reported_steps = self._steps
        counters, drafter = self._scheduler.counters, self._scheduler.drafter
        return Stats(
            running=len(self._scheduler.running),
            waiting=len(self._scheduler.waiting),
            kv_used=sum(cache.used_tokens for cache in self._caches),
            kv_cached=sum(cache.idle_tokens for cache in self._caches),
            kv_total=self._kv_total,
            steps=self._steps,
            prefill_steps=self._prefills,
            decode_steps=sorted(self._decodes.items()),
            prompt_tokens=counters.prompt_tokens,
            cached_tokens=counters.cached_tokens,
            generated_tokens=counters.generated_tokens,
            preemptions=counters.preemptions,
            spec_drafts=drafter.drafts,
            spec_draft_tokens=drafter.drafted,
            spec_accepted_tokens=drafter.accepted,
            spec_accepted_per_position=drafter.accepted_per_position,
            spec_drafted_per_position=drafter.drafted_per_position,
            spec_draft_length=drafter.length,
            spec_tokens_per_cycle=drafter.tokens_a_cycle,
            spec_break_even=drafter.break_even,
            spec_cycles=self._spent.cycles,
            spec_foreseen=self._spent.foreseen,
            spec_seconds=self._spent.seconds,
            spec_simulated=self._simulated,
            step_collectives=_median(count for count, _ in self._collectives),
            step_collective_ms=_median(ms for _, ms in self._collectives),
            step_ms=self._step_ms,
            rebalances=self._runner.rebalances,
            expert_balancedness=self._runner.balancedness,
        )

    @property
    def _steps(self) -> int:
        return self._prefills + self._decodes.total()

    @property
    def _kv_total(self) -> int:
        return sum(cache.capacity for cache in self._caches)

    @property
    def _step_ms(self) -> float:
        return _median(self._decode_ms)

    def _log(self) -> None:
        now = time.monotonic()
        generated = self._scheduler.counters.generated_tokens
        log.info(
            "decode: running %d, waiting %d, KV %d of %d tokens, %.1f tok/s, step %.1f ms%s",
            len(self._scheduler.running),
            len(self._scheduler.waiting),
            sum(cache.used_tokens for cache in self._caches),
            self._kv_total,
            (generated - self._tokens_logged) / (now - self._logged_at),
            self._step_ms,
            self._speculation(),
        )
        self._tokens_logged = generated
        self._logged_at = now

    def _speculation(self) -> str:
        """Return how drafts do, for the log line; nothing before the first one."""
        drafter = self._scheduler.drafter
        if drafter.tokens_a_cycle is None:
            return ""
        text = f", drafts of {drafter.length}, {drafter.tokens_a_cycle:.2f} tokens a cycle"
        if drafter.break_even is not None:
            text += f" (pays above {drafter.break_even:.2f})"
        if self._simulated is not None:
            text += f", acceptance SIMULATED at {self._simulated:g}"
        return text


def _median(numbers: Iterable[float]) -> float:
    known = list(numbers)
    return statistics.median(known) if known else 0.0
