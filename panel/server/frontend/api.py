"""The OpenAI-compatible endpoints."""

from __future__ import annotations

from collections.abc import AsyncGenerator
from contextlib import AbstractContextManager

import msgspec
from starlette.requests import Request
from starlette.responses import Response

from panel.server.frontend.chat import ChatFormat
from panel.server.frontend.choice import Choice
from panel.server.frontend.completions import CompletionFormat
from panel.server.frontend.disconnect import unless_disconnected
from panel.server.frontend.errors import ApiError
from panel.server.frontend.generation import Generation, generation
from panel.server.frontend.prepare import Job, chat_job, completion_job
from panel.server.frontend.requests import ChatRequest, CompletionRequest, decode
from panel.server.frontend.service import Service
from panel.server.frontend.sse import EventStream
from panel.server.frontend.wire import DONE, Format, encode, event


class Model(msgspec.Struct, frozen=True):
    """The one model served."""

    id: str
    max_model_len: int | None
    created: int = 0
    object: str = "model"
    owned_by: str = "moepanel"


class Models(msgspec.Struct, frozen=True):
    """Body of `/v1/models`."""

    data: list[Model]
    object: str = "list"


class Api:
    """The endpoints under `/v1`."""

    def __init__(self, service: Service) -> None:
        self._service = service

    async def models(self, _: Request) -> Response:
        """Answer `GET /v1/models`."""
        started = self._service.link.started
        model = Model(self._service.model, None if started is None else started.max_context)
        return Response(encode(Models([model])), media_type="application/json")

    async def chat(self, request: Request) -> Response:
        """Answer `POST /v1/chat/completions`."""
        context = self._service.context()
        body = decode(await self._read(request), ChatRequest)
        self._check_model(body.model)
        text = self._service.text
        job = chat_job(body, text, context)
        return await self._respond(request, job, ChatFormat(job, text, self._service.label))

    async def completions(self, request: Request) -> Response:
        """Answer `POST /v1/completions`."""
        context = self._service.context()
        body = decode(await self._read(request), CompletionRequest)
        self._check_model(body.model)
        text = self._service.text
        job = completion_job(body, text, context)
        return await self._respond(request, job, CompletionFormat(job, text, self._service.label))

    async def _read(self, request: Request) -> bytes:
        """Return the body; a full queue refuses before anything is made of it."""
        body = await self._service.read(request)
        self._service.check_room(1)
        return body

    def _check_model(self, model: str | None) -> None:
        if model is not None and model != self._service.model:
            raise ApiError(
                f"model {model!r} is not served here; this engine serves {self._service.model!r}",
                status=404,
                param="model",
                code="model_not_found",
            )

    async def _respond(self, request: Request, job: Job, form: Format) -> Response:
        if job.stream:
            return EventStream(self._stream(job, form))
        body = await unless_disconnected(request.receive, self._complete(job, form))
        return Response(body, media_type="application/json")

    def _generation(self, job: Job) -> AbstractContextManager[Generation]:
        service = self._service
        service.check_room(len(job.sequences))
        return generation(job, service.text, service.link, service.metrics)

    async def _complete(self, job: Job, form: Format) -> bytes:
        with self._generation(job) as run:
            while not run.done:
                await run.advance()
            return encode(form.answer([choice.take() for choice in run.choices], run.usage()))

    async def _stream(self, job: Job, form: Format) -> AsyncGenerator[bytes, None]:
        with self._generation(job) as run:
            chunks = list(form.opening())
            while not run.done:
                pieces = [choice.take() for choice in await run.advance() if self._due(choice)]
                chunks += [
                    form.chunk(piece)
                    for piece in pieces
                    if piece.text or piece.scored or piece.finish
                ]
                if chunks:
                    yield b"".join(event(encode(chunk)) for chunk in chunks)
                chunks = []
            if job.include_usage:
                yield event(encode(form.closing(run.usage())))
            yield DONE

    def _due(self, choice: Choice) -> bool:
        """Whether to send what a choice has: the first tokens, the last, and every so many."""
        first = choice.fresh == choice.tokens
        return first or bool(choice.finish) or choice.fresh >= self._service.options.stream_interval
