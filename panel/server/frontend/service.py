"""What the endpoints work with."""

from __future__ import annotations

import time
from dataclasses import dataclass

from starlette.requests import Request

from panel.server.frontend.body import read_body
from panel.server.frontend.errors import ApiError
from panel.server.frontend.link import Link
from panel.server.frontend.metrics import Metrics
from panel.server.frontend.readiness import RankState, describe, rank_states
from panel.server.frontend.text import Text
from panel.server.heartbeat import HeartbeatFile
from panel.server.options import Options
from panel.server.sizes import simulated_rate


@dataclass(frozen=True, slots=True)
class Service:
    """One front end: its text side, its link with rank 0, its view of the ranks."""

    options: Options
    model: str
    """Name of the model in the API."""
    text: Text
    link: Link
    heartbeats: HeartbeatFile
    metrics: Metrics

    @property
    def label(self) -> str:
        """The model's name as answers bear it: one whose text means nothing says so."""
        rate = simulated_rate(self.options)
        return self.model if rate is None else f"{self.model} (SIMULATED acceptance {rate:g})"

    def ranks(self) -> list[RankState]:
        """Return the state of every rank now."""
        return rank_states(self.heartbeats.read_all(), time.monotonic_ns())

    def not_serving(self) -> str | None:
        """Return why no request can run now, or None."""
        if not self.link.alive:
            return self.link.loss
        if self.link.draining:
            return "the engine is shutting down"
        if self.link.started is None:
            return f"the engine is starting: {describe(self.ranks())}"
        return None

    def context(self) -> int:
        """Return the most tokens of a prompt with its answer.

        Raises `ApiError` 503 where no request can run now.
        """
        reason = self.not_serving()
        started = self.link.started
        if reason is not None or started is None:
            raise ApiError(reason or "", status=503, code="engine_unavailable", retry_after=1)
        return min(started.max_context, started.max_total_tokens)

    async def read(self, request: Request) -> bytes:
        """Return the body of a request; raises `ApiError` 413 for one that is too large."""
        return await read_body(request, self.options.max_body_bytes)

    def check_room(self, sequences: int) -> None:
        """Raise `ApiError` where so many more sequences may not wait: 503, or 400 if never."""
        most = self.options.max_running_requests + self.options.max_queued_requests
        if sequences > most:
            raise ApiError(
                f"the request asks for {sequences} choices; {most} may run and wait together",
                param="n",
            )
        if self.link.open + sequences > most:
            raise ApiError(
                f"the engine is overloaded: {self.link.open} sequences run or wait, and "
                f"{most} may; try again later",
                status=503,
                code="queue_full",
                retry_after=1,
            )
