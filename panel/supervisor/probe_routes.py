"""The part of the HTTP API that looks into a running launch."""

from __future__ import annotations

import asyncio
from typing import get_args

import msgspec
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from panel.domain.errors import NotFoundError, UsageError
from panel.domain.hang import Step
from panel.domain.series import Series
from panel.domain.stacks import TakeStacks
from panel.probes import series
from panel.supervisor.evidence import Folder
from panel.supervisor.node import Node
from panel.supervisor.stacks import take_stacks

_DEFAULT_MOMENTS = 600


class ProbeRoutes:
    """One method a route."""

    def __init__(self, node: Node) -> None:
        self._node = node

    def routes(self) -> list[Route]:
        """Return the table."""
        launch = "/v1/launches/{id:int}"
        return [
            Route(f"{launch}/stacks", self.stacks, methods=["POST"]),
            Route(f"{launch}/hang", self.hang),
            Route(f"{launch}/hang/{{step}}", self.hang_step, methods=["POST"]),
            Route(f"{launch}/series", self.series),
        ]

    async def stacks(self, request: Request) -> Response:
        """Stacks of all its processes, now; saved in the evidence."""
        launch = self._node.watching(request.path_params["id"]).launch
        try:
            wanted = msgspec.json.decode(await request.body() or b"{}", type=TakeStacks)
        except msgspec.DecodeError as error:
            raise UsageError(f"the body is not understood: {error}") from None
        return _json(await take_stacks(launch, "asked", native=wanted.native))

    async def hang(self, request: Request) -> Response:
        """The ladder as it stands."""
        return _json(self._node.watching(request.path_params["id"]).hangs.view())

    async def hang_step(self, request: Request) -> Response:
        """One step of the ladder, done now."""
        step = request.path_params["step"]
        if step not in get_args(Step):
            raise UsageError(f"there is no step {step!r}", ", ".join(get_args(Step)))
        hangs = self._node.watching(request.path_params["id"]).hangs
        return _json(await hangs.step(step))

    async def series(self, request: Request) -> Response:
        """Figures over time: the last minutes of a running launch, all of an earlier one."""
        number = request.path_params["id"]
        names = tuple(request.query_params.getlist("name"))
        count = request.query_params.get("limit", str(_DEFAULT_MOMENTS))
        if not count.isdecimal():
            raise UsageError(f"limit={count!r} is not a whole number")
        found = await asyncio.to_thread(self._series, number, names)
        return _json(found.last(int(count)))

    def _series(self, number: int, names: tuple[str, ...]) -> Series:
        try:
            return self._node.watching(number).launch.history.series(names)
        except NotFoundError:
            path = Folder(self._node.home.launch(number)).series
        try:
            return series.read(path, names)
        except FileNotFoundError:
            raise NotFoundError(f"launch {number} has no figures", f"expected {path}") from None


def _json(value: msgspec.Struct) -> Response:
    return Response(msgspec.json.encode(value), media_type="application/json")
