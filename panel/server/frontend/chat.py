"""The wire format of `/v1/chat/completions`."""

from __future__ import annotations

import time
from collections.abc import Sequence
from typing import Literal

import msgspec
from msgspec import UNSET, UnsetType

from panel.server.frontend.choice import Piece, Scored
from panel.server.frontend.prepare import Job
from panel.server.frontend.text import Text
from panel.server.frontend.usage import Usage
from panel.server.messages import Finish


class TopLogprob(msgspec.Struct, frozen=True):
    """A token that might have come, and how probable it was."""

    token: str
    logprob: float
    bytes: list[int]


class TokenLogprob(TopLogprob, frozen=True):
    """A token that came, with its most probable rivals."""

    top_logprobs: list[TopLogprob]


class Logprobs(msgspec.Struct, frozen=True):
    """The tokens behind a text."""

    content: list[TokenLogprob]


class AnswerMessage(msgspec.Struct, frozen=True):
    """A whole turn of the model."""

    content: str
    role: Literal["assistant"] = "assistant"


class ChatChoice(msgspec.Struct, frozen=True):
    """One finished choice."""

    index: int
    message: AnswerMessage
    logprobs: Logprobs | None
    finish_reason: Finish | None


class ChatCompletion(msgspec.Struct, frozen=True):
    """The answer of a request that does not stream."""

    id: str
    created: int
    model: str
    choices: list[ChatChoice]
    usage: Usage
    object: Literal["chat.completion"] = "chat.completion"


class Delta(msgspec.Struct, frozen=True):
    """What a chunk adds to a turn."""

    role: str | UnsetType = UNSET
    content: str | UnsetType = UNSET


class DeltaChoice(msgspec.Struct, frozen=True):
    """What a chunk adds to one choice."""

    index: int
    delta: Delta
    logprobs: Logprobs | None
    finish_reason: Finish | None


class ChatChunk(msgspec.Struct, frozen=True):
    """One event of a stream."""

    id: str
    created: int
    model: str
    choices: list[DeltaChoice]
    usage: Usage | UnsetType | None
    object: Literal["chat.completion.chunk"] = "chat.completion.chunk"


class ChatFormat:
    """Writes the answer to one chat request."""

    def __init__(self, job: Job, text: Text, model: str) -> None:
        self._job = job
        self._text = text
        self._model = model
        self._created = int(time.time())
        self._scored = job.sequences[0].logprobs is not None
        self._no_usage = None if job.include_usage else UNSET

    def opening(self) -> list[ChatChunk]:
        """Return the chunks that open each choice with its role."""
        delta = Delta(role="assistant", content="")
        return [
            self._chunk(DeltaChoice(index, delta, None, None))
            for index in range(len(self._job.sequences))
        ]

    def chunk(self, piece: Piece) -> ChatChunk:
        """Return the chunk of a streamed piece."""
        delta = Delta(content=piece.text)
        logprobs = self._logprobs(piece.scored)
        return self._chunk(DeltaChoice(piece.index, delta, logprobs, piece.finish))

    def closing(self, usage: Usage) -> ChatChunk:
        """Return the chunk that reports the usage of a stream."""
        return ChatChunk(self._job.id, self._created, self._model, [], usage)

    def answer(self, pieces: Sequence[Piece], usage: Usage) -> ChatCompletion:
        """Return the whole answer."""
        choices = [
            ChatChoice(
                piece.index, AnswerMessage(piece.text), self._logprobs(piece.scored), piece.finish
            )
            for piece in pieces
        ]
        return ChatCompletion(self._job.id, self._created, self._model, choices, usage)

    def _chunk(self, choice: DeltaChoice) -> ChatChunk:
        return ChatChunk(self._job.id, self._created, self._model, [choice], self._no_usage)

    def _logprobs(self, scored: Sequence[Scored]) -> Logprobs | None:
        if not self._scored:
            return None
        return Logprobs(
            [
                TokenLogprob(
                    *self._token(entry.token, entry.logprob.logprob),
                    [TopLogprob(*self._token(*rival)) for rival in entry.logprob.top],
                )
                for entry in scored
                if entry.logprob is not None
            ]
        )

    def _token(self, token: int, logprob: float) -> tuple[str, float, list[int]]:
        return self._text.token_text(token), logprob, list(self._text.token_bytes(token))
