"""What clients may send: OpenAI's fields and those that SGLang and vLLM add.

Fields that are not named here are accepted and ignored, as both do; a named field of a wrong type
or range is the client's error.
"""

from __future__ import annotations

import re
from typing import Annotated, Any, Literal, TypeVar

import msgspec
from msgspec import Meta

from panel.server.frontend.errors import ApiError

Count = Annotated[int, Meta(ge=1)]
TokenId = Annotated[int, Meta(ge=0)]
StopString = Annotated[str, Meta(min_length=1)]
Penalty = Annotated[float, Meta(ge=-2.0, le=2.0)]
TopLogprobs = Annotated[int, Meta(ge=0, le=20)]


class StreamOptions(msgspec.Struct, frozen=True):
    """How to stream."""

    include_usage: bool | None = None


class _Request(msgspec.Struct, frozen=True, kw_only=True):
    """What both APIs have in common. None is the default, as with a field left out."""

    model: str | None = None
    rid: Annotated[str, Meta(min_length=1, max_length=256)] | None = None
    """Name for `/abort_request`; also the `id` of the answer."""
    stream: bool | None = None
    stream_options: StreamOptions | None = None
    n: Annotated[int, Meta(ge=1, le=128)] | None = None
    max_tokens: Count | None = None
    temperature: Annotated[float, Meta(ge=0.0, le=100.0)] | None = None
    top_p: Annotated[float, Meta(gt=0.0, le=1.0)] | None = None
    top_k: Annotated[int, Meta(ge=-1)] | None = None
    min_p: Annotated[float, Meta(ge=0.0, le=1.0)] | None = None
    seed: Annotated[int, Meta(ge=0, le=2**62)] | None = None
    stop: StopString | Annotated[list[StopString], Meta(max_length=8)] | None = None
    stop_token_ids: list[TokenId] | None = None
    ignore_eos: bool | None = None
    frequency_penalty: Penalty | None = None
    presence_penalty: Penalty | None = None
    repetition_penalty: Annotated[float, Meta(gt=0.0, le=10.0)] | None = None
    priority: Annotated[int, Meta(ge=-100, le=100)] | None = None
    """The highest goes first; 0 without one."""


class TextPart(msgspec.Struct, frozen=True, tag_field="type", tag="text"):
    """A piece of a message; this engine reads text only."""

    text: str


class Message(msgspec.Struct, frozen=True, omit_defaults=True):
    """One turn of a conversation."""

    role: str
    content: str | list[TextPart] | None = None
    name: str | None = None


class ChatRequest(_Request, frozen=True, kw_only=True):
    """Body of `/v1/chat/completions`."""

    messages: Annotated[list[Message], Meta(min_length=1)]
    max_completion_tokens: Count | None = None
    logprobs: bool | None = None
    top_logprobs: TopLogprobs | None = None
    add_generation_prompt: bool = True
    chat_template_kwargs: dict[str, Any] | None = None


class CompletionRequest(_Request, frozen=True, kw_only=True):
    """Body of `/v1/completions`."""

    prompt: str | Annotated[list[str | TokenId | list[TokenId]], Meta(min_length=1)]
    """One text, texts, the tokens of one prompt, or the tokens of several."""
    logprobs: TopLogprobs | None = None
    echo: bool | None = None


class AbortRequest(msgspec.Struct, frozen=True):
    """Body of `/abort_request`."""

    rid: str | None = None
    abort_all: Literal[True] | None = None


Body = TypeVar("Body", ChatRequest, CompletionRequest, AbortRequest)

_PATH = re.compile(r" - at `\$\.?(?P<path>[^`]*)`$")
_MISSING = re.compile(r"missing required field `(?P<name>[^`]*)`")


def decode(body: bytes, kind: type[Body]) -> Body:
    """Return the request in `body`; raises `ApiError` that names the field."""
    try:
        return msgspec.json.decode(body, type=kind)
    except msgspec.ValidationError as error:
        message = str(error)
        place = _PATH.search(message) or _MISSING.search(message)
        raise ApiError(message, param=place[1] if place else None, code="invalid_value") from None
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        raise ApiError(f"the body is not valid JSON: {error}", code="invalid_json") from None
