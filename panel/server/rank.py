"""The process of one rank."""

from __future__ import annotations

import ctypes
import faulthandler
import logging
import os
import signal
import socket
import time
from contextlib import suppress
from types import FrameType

import torch

from panel.server.channel import Channel
from panel.server.exits import Exit
from panel.server.faults import Fault
from panel.server.leader import lead
from panel.server.life import Life
from panel.server.messages import Stopped
from panel.server.phases import Phase
from panel.server.place import Place
from panel.server.plan import Work, decode_plan
from panel.server.reporting import rank_tag, setup
from panel.server.roster import PeerLostError
from panel.server.startup import Ready, start
from panel.server.trace import trace

log = logging.getLogger(__name__)

_STOP_PLAN_SECONDS = 10.0
"""How long a follower asked to stop waits for the leader's plan beyond the drain."""
_PR_SET_PTRACER = 0x59616D61
_PR_SET_PTRACER_ANY = ctypes.c_ulong(-1)


class StopRequest:
    """What SIGTERM leaves behind for the loops to look at."""

    def __init__(self, life: Life, patience: float) -> None:
        self.at: float | None = None
        """When SIGTERM arrived (CLOCK_MONOTONIC)."""
        self._life = life
        self._patience = patience
        signal.signal(signal.SIGTERM, self._on_signal)
        signal.signal(signal.SIGINT, signal.SIG_IGN)

    def _on_signal(self, number: int, frame: FrameType | None) -> None:
        if self.at is None:
            self.at = time.monotonic()
        if not self._life.entered(Phase.SERVING):
            # Nothing to drain. An exception from here could surface inside any library.
            self._life.enter(Phase.STOPPED, "asked to stop while starting")
            os._exit(Exit.OK)

    def check(self) -> None:
        """Raise `PeerLostError` where the leader's stop plan does not come in time."""
        if self.at is not None and time.monotonic() - self.at > self._patience:
            raise PeerLostError("rank 0 sent no stop plan after SIGTERM; look in the log of rank 0")


def run_rank(place: Place, pid: int, connection: socket.socket | None, fault: Fault | None) -> Exit:
    """Live the life of a rank; `connection` leads to the front end and is rank 0's alone."""
    options, shard, shared = place.options, place.shard, place.shared
    life = Life(shard.rank, shared.heartbeats, place.events, fault)
    tag = rank_tag(shard.rank, shard.tp_size, shard.ep_size)
    setup(tag, options.log_level, phase_of=lambda: life.phase)
    faulthandler.enable()
    # Stacks into the log where nobody may trace this process, also while C code holds the GIL.
    faulthandler.register(signal.SIGUSR1, all_threads=True)
    ctypes.CDLL(None).prctl(_PR_SET_PTRACER, _PR_SET_PTRACER_ANY, 0, 0, 0)
    stop = StopRequest(life, options.drain_seconds + _STOP_PLAN_SECONDS)
    shared.roster.join(shard.rank, pid, step_of=lambda: life.step, interrupted=stop.check)
    try:
        life.enter(Phase.ARGS, f"rank {shard.rank} of {shard.tp_size}, {place.device}")
        life.enter(Phase.SPAWN, f"pid {pid}")
        life.enter(Phase.IMPORT, f"torch {torch.__version__}")
        # After a fork torch replaces its thread pool at first use, and trips over itself where the
        # threads that load weights do that at once.
        torch.set_num_threads(torch.get_num_threads())
        if place.device.type == "cuda":
            torch.cuda.set_device(place.device)
        with torch.inference_mode():
            ready = start(place, life)
            life.enter(Phase.SERVING, "serving")
            if connection is None:
                _follow(place, ready, life)
            else:
                lead(place, ready, life, Channel(connection), lambda: stop.at is not None)
        life.enter(Phase.STOPPED, "stopped")
    except PeerLostError as error:
        log.error("%s", error)
        if connection is not None and not life.entered(Phase.SERVING):
            with suppress(PeerLostError):
                Channel(connection).send(Stopped(str(error)))
        return Exit.PEER
    return Exit.OK


def _follow(place: Place, ready: Ready, life: Life) -> None:
    """Run the leader's plans until the one that says stop."""
    shared = place.shared
    while True:
        plan = decode_plan(shared.rendezvous.follow(shared.roster))
        if plan.draining and life.phase is not Phase.DRAINING:
            life.enter(Phase.DRAINING, "draining")
        if plan.work is Work.STOP:
            return
        life.tick()
        if plan.traced:
            trace(ready.runner, plan, shared)
        elif plan.on_device:
            ready.runner.join(plan)
        elif plan.work is not Work.IDLE:
            ready.runner(plan)
