"""The endpoints for operators and probes."""

from __future__ import annotations

from dataclasses import asdict
from typing import Any

import msgspec
from prometheus_client import CONTENT_TYPE_LATEST
from starlette.requests import Request
from starlette.responses import Response

from panel import __version__
from panel.server.frontend.errors import ApiError
from panel.server.frontend.readiness import RankState, describe
from panel.server.frontend.requests import AbortRequest, decode
from panel.server.frontend.service import Service
from panel.server.frontend.wire import encode
from panel.server.messages import Started, Stats
from panel.server.options import Options

MASK = "***"


class Health(msgspec.Struct, frozen=True):
    """Body of `/health`."""

    status: str


class Readiness(msgspec.Struct, frozen=True):
    """Body of `/ready`."""

    ready: bool
    reason: str | None
    late: list[RankState]


class ServerInfo(msgspec.Struct, frozen=True):
    """Body of `/server_info`."""

    version: str
    model: str
    options: dict[str, Any]
    started: Started | None
    stats: Stats | None
    ranks: list[RankState]


class Aborted(msgspec.Struct, frozen=True):
    """Body of the answer to `/abort_request`."""

    aborted: int


class FlushedCache(msgspec.Struct, frozen=True):
    """Body of the answer to `/flush_cache`."""

    flushed_tokens: int


class Operations:
    """The endpoints beside `/v1`."""

    def __init__(self, service: Service) -> None:
        self._service = service

    async def health(self, _: Request) -> Response:
        """Answer `GET /health`: 200 while this process and its link with rank 0 live."""
        if self._service.link.alive:
            return _json(Health("ok"))
        return _json(Health(self._service.link.loss), 503)

    async def ready(self, _: Request) -> Response:
        """Answer `GET /ready`: 200 while every rank serves and beats; else who is late."""
        late = [state for state in self._service.ranks() if state.late]
        reason = self._service.not_serving() or (describe(late) if late else None)
        return _json(Readiness(reason is None, reason, late), 200 if reason is None else 503)

    async def server_info(self, _: Request) -> Response:
        """Answer `GET /server_info`."""
        service = self._service
        info = ServerInfo(
            __version__,
            service.label,
            masked(service.options),
            service.link.started,
            service.link.stats,
            service.ranks(),
        )
        return _json(info)

    async def metrics(self, _: Request) -> Response:
        """Answer `GET /metrics`."""
        return Response(self._service.metrics.render(), media_type=CONTENT_TYPE_LATEST)

    async def abort(self, request: Request) -> Response:
        """Answer `POST /abort_request` with the number of requests that it ended."""
        body = decode(await self._service.read(request), AbortRequest)
        if (body.rid is None) == (body.abort_all is None):
            raise ApiError('give either "rid" or "abort_all": true', param="rid")
        return _json(Aborted(self._service.link.abort(body.rid)))

    async def rebalance(self, _: Request) -> Response:
        """Answer `POST /eplb/rebalance` with what moved."""
        self._service.context()
        if self._service.options.ep_size == 1:
            raise ApiError("experts have places of their own only with ep-size above 1")
        return _json(await self._service.link.rebalance())

    async def flush(self, _: Request) -> Response:
        """Answer `POST /flush_cache` with the tokens of cached prompts that it forgot."""
        self._service.context()
        return _json(FlushedCache(await self._service.link.flush()))


def masked(options: Options) -> dict[str, Any]:
    """Return the options as a dict that is fit to be shown."""
    shown = asdict(options)
    if options.api_key is not None:
        shown["api_key"] = MASK
    return shown


def _json(body: msgspec.Struct, status: int = 200) -> Response:
    return Response(encode(body), status, media_type="application/json")
