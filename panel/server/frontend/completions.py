"""The wire format of `/v1/completions`."""

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
from panel.server.messages import Finish, TokenLogprob


class Logprobs(msgspec.Struct, frozen=True):
    """The tokens behind a text, as parallel lists."""

    tokens: list[str]
    token_logprobs: list[float | None]
    top_logprobs: list[dict[str, float] | None]
    """None for the first token of a prompt."""
    text_offset: list[int]


class CompletionChoice(msgspec.Struct, frozen=True):
    """One choice, whole or a piece of it."""

    index: int
    text: str
    logprobs: Logprobs | None
    finish_reason: Finish | None


class Completion(msgspec.Struct, frozen=True):
    """An answer, or one event of a stream: OpenAI writes both alike."""

    id: str
    created: int
    model: str
    choices: list[CompletionChoice]
    usage: Usage | UnsetType | None
    object: Literal["text_completion"] = "text_completion"


class CompletionFormat:
    """Writes the answer to one completion request."""

    def __init__(self, job: Job, text: Text, model: str) -> None:
        self._job = job
        self._text = text
        self._model = model
        self._created = int(time.time())
        self._scored = job.sequences[0].logprobs is not None
        self._no_usage = None if job.include_usage else UNSET

    def opening(self) -> list[Completion]:
        """Return the chunks that repeat the prompts, where the client asked for that."""
        return [
            self._body([CompletionChoice(index, prompt, None, None)], self._no_usage)
            for index, prompt in enumerate(self._job.echo)
            if prompt
        ]

    def chunk(self, piece: Piece) -> Completion:
        """Return the chunk of a streamed piece."""
        choice = CompletionChoice(
            piece.index, piece.text, self._logprobs(piece.scored), piece.finish
        )
        return self._body([choice], self._no_usage)

    def closing(self, usage: Usage) -> Completion:
        """Return the chunk that reports the usage of a stream."""
        return self._body([], usage)

    def answer(self, pieces: Sequence[Piece], usage: Usage) -> Completion:
        """Return the whole answer."""
        choices = [
            CompletionChoice(
                piece.index, prompt + piece.text, self._logprobs(piece.scored), piece.finish
            )
            for prompt, piece in zip(self._job.echo, pieces, strict=True)
        ]
        return self._body(choices, usage)

    def _body(self, choices: list[CompletionChoice], usage: Usage | UnsetType | None) -> Completion:
        return Completion(self._job.id, self._created, self._model, choices, usage)

    def _logprobs(self, scored: Sequence[Scored]) -> Logprobs | None:
        if not self._scored:
            return None
        name = self._text.token_text
        logprobs = [entry.logprob for entry in scored]
        return Logprobs(
            tokens=[name(entry.token) for entry in scored],
            token_logprobs=[None if each is None else each.logprob for each in logprobs],
            top_logprobs=[None if each is None else self._top(each) for each in logprobs],
            text_offset=[entry.start for entry in scored],
        )

    def _top(self, entry: TokenLogprob) -> dict[str, float]:
        """Return the most probable tokens and the one that came."""
        name = self._text.token_text
        rivals = {name(token): logprob for token, logprob in entry.top}
        return rivals | {name(entry.token): entry.logprob}
