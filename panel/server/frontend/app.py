"""The routes."""

from __future__ import annotations

from starlette.applications import Starlette
from starlette.exceptions import HTTPException
from starlette.middleware import Middleware
from starlette.requests import ClientDisconnect
from starlette.routing import Route

from panel.server.frontend.access import AccessLog, BearerCheck
from panel.server.frontend.api import Api
from panel.server.frontend.errors import ApiError, on_api_error, on_bug, on_hang_up, on_http_error
from panel.server.frontend.operations import Operations
from panel.server.frontend.service import Service


def build_app(service: Service) -> Starlette:
    """Return the application of one front end."""
    api = Api(service)
    operations = Operations(service)
    middleware = [Middleware(AccessLog)]
    if service.options.api_key is not None:
        middleware.append(Middleware(BearerCheck, key=service.options.api_key))
    return Starlette(
        routes=[
            Route("/v1/models", api.models),
            Route("/v1/chat/completions", api.chat, methods=["POST"]),
            Route("/v1/completions", api.completions, methods=["POST"]),
            Route("/health", operations.health),
            Route("/ready", operations.ready),
            Route("/server_info", operations.server_info),
            Route("/metrics", operations.metrics),
            Route("/abort_request", operations.abort, methods=["POST"]),
            Route("/flush_cache", operations.flush, methods=["POST"]),
            Route("/eplb/rebalance", operations.rebalance, methods=["POST"]),
        ],
        middleware=middleware,
        exception_handlers={
            ApiError: on_api_error,
            HTTPException: on_http_error,
            ClientDisconnect: on_hang_up,
            Exception: on_bug,
        },
    )
