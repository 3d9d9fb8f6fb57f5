"""The life of a rank: one object through which each phase is entered.

Entering a phase logs a line, writes an event, beats the heartbeat and fires the drill aimed at it.
"""

from __future__ import annotations

import logging
import time

from panel.server.faults import Fault, Kind, fire
from panel.server.heartbeat import HeartbeatFile
from panel.server.phases import ORDER, Phase
from panel.server.reporting import Events

log = logging.getLogger(__name__)

TICKING = frozenset({Phase.SERVING, Phase.DRAINING})
"""Phases with steps or idle ticks; in the others a drill waits for its moment at the entry."""


class Life:
    """Phase, step and drill of one rank."""

    def __init__(
        self, rank: int, heartbeats: HeartbeatFile, events: Events, fault: Fault | None
    ) -> None:
        self.rank = rank
        self.phase = Phase.ARGS
        self.step = 0
        self.poisoned = False
        """True once the drill `nan` has fired: the model's hidden state is to become NaN."""
        self.seconds: dict[str, float] = {}
        """Time spent in each phase left so far."""
        self._heartbeats = heartbeats
        self._events = events
        self._fault = fault if fault is not None and fault.rank == rank else None
        self._slow = False
        self._entered = time.monotonic()

    def enter(self, phase: Phase, text: str) -> None:
        """Begin `phase`; `text` says what happens in it."""
        now = time.monotonic()
        if phase is not self.phase:
            self.seconds[self.phase] = now - self._entered
        self.phase = phase
        self._entered = now
        log.info("%s", text)
        self._events.write("phase", rank=self.rank, phase=phase)
        self._heartbeats.beat(self.rank, phase, self.step)
        if self._fault is not None and self._fault.phase is phase and phase not in TICKING:
            time.sleep(self._fault.after)
        self._drill()

    def progress(self, done: int, total: int, detail: int = 0) -> None:
        """Say how far the phase has come (tensors, graph buckets)."""
        self._heartbeats.beat(self.rank, self.phase, self.step, done, total, detail)

    def tick(self) -> None:
        """Count one step or idle tick."""
        self.step += 1
        self._heartbeats.beat(self.rank, self.phase, self.step)
        if self._slow:
            time.sleep(1.0)
        if self._fault is not None:
            self._drill()

    def entered(self, phase: Phase) -> bool:
        """True where `phase` or a later one has begun."""
        return ORDER.index(self.phase) >= ORDER.index(phase)

    def _drill(self) -> None:
        fault = self._fault
        if fault is None or fault.phase is not self.phase:
            return
        if time.monotonic() - self._entered < fault.after:
            return
        self._fault = None
        self._slow = self._slow or fault.kind is Kind.SLOW
        self.poisoned = self.poisoned or fault.kind is Kind.NAN
        fire(fault)
