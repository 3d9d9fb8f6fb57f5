"""How fast the engine is: counts and times of the leader's steps."""

from __future__ import annotations

import logging
import statistics
import time
from collections import deque

from panel.server.messages import Stats
from panel.server.pages import PageAllocator
from panel.server.scheduler import Scheduler

log = logging.getLogger(__name__)

STATS_SECONDS = 0.1
"""Time between two reports to the front end."""
_WINDOW = 64
"""Decode steps whose median counts as the step time."""


class Meter:
    """Watches the scheduler; writes a log line every `log_interval` decode steps."""

    def __init__(self, scheduler: Scheduler, pages: PageAllocator, log_interval: int) -> None:
        self._scheduler = scheduler
        self._pages = pages
        self._log_interval = log_interval
        self._steps = 0
        self._decode_ms: deque[float] = deque(maxlen=_WINDOW)
        self._decodes = 0
        self._tokens_logged = 0
        self._logged_at = time.monotonic()
        self._reported_at = 0.0

    def count(self, seconds: float, *, decode: bool) -> None:
        """Take in the duration of one step of the model."""
        self._steps += 1
        if decode:
            self._decode_ms.append(seconds * 1e3)
            self._decodes += 1
            if self._decodes % self._log_interval == 0:
                self._log()

    def report(self) -> Stats | None:
        """Return the state of things, or None where the last report is too fresh."""
        now = time.monotonic()
        if now - self._reported_at < STATS_SECONDS:
            return None
        self._reported_at = now
        counters = self._scheduler.counters
        return Stats(
            running=len(self._scheduler.running),
            waiting=len(self._scheduler.waiting),
            kv_used=self._pages.used_tokens,
            kv_total=self._pages.count * self._pages.page_size,
            steps=self._steps,
            prompt_tokens=counters.prompt_tokens,
            generated_tokens=counters.generated_tokens,
            preemptions=counters.preemptions,
            spec_drafts=counters.drafts,
            spec_draft_tokens=counters.draft_tokens,
            spec_accepted_tokens=counters.accepted_tokens,
            spec_accepted_per_position=counters.accepted_per_position,
            step_ms=self._step_ms,
        )

    @property
    def _step_ms(self) -> float:
        return statistics.median(self._decode_ms) if self._decode_ms else 0.0

    def _log(self) -> None:
        now = time.monotonic()
        generated = self._scheduler.counters.generated_tokens
        log.info(
            "decode: running %d, waiting %d, KV %d of %d tokens, %.1f tok/s, step %.1f ms",
            len(self._scheduler.running),
            len(self._scheduler.waiting),
            self._pages.used_tokens,
            self._pages.count * self._pages.page_size,
            (generated - self._tokens_logged) / (now - self._logged_at),
            self._step_ms,
        )
        self._tokens_logged = generated
        self._logged_at = now
