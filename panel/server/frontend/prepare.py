"""Requests to work: what rank 0 must generate and how its tokens become text."""

from __future__ import annotations

import itertools
import uuid
from collections.abc import Sequence
from dataclasses import dataclass

import msgspec

from panel.server.frontend.errors import ApiError
from panel.server.frontend.requests import ChatRequest, CompletionRequest
from panel.server.frontend.text import Text
from panel.server.messages import Generate

COMPLETION_TOKENS = 16
"""OpenAI's default for `max_tokens` of `/v1/completions`."""

_serial = itertools.count()


@dataclass(frozen=True, slots=True)
class Job:
    """One request, understood."""

    id: str
    sequences: list[Generate]
    """One a choice, in the order of the choices."""
    copies: int
    """Choices a prompt."""
    stops: tuple[str, ...]
    prompt_tokens: int
    stream: bool
    include_usage: bool
    echo: tuple[str, ...]
    """What precedes the text of each choice; empty texts where nothing does, and where the prompt's
    tokens come with their scores."""


def chat_job(request: ChatRequest, text: Text, context: int) -> Job:
    """Prepare a chat request for a model with room for `context` tokens."""
    if request.top_logprobs is not None and not request.logprobs:
        raise ApiError("top_logprobs needs logprobs to be true", param="top_logprobs")
    prompt = text.encode_chat(
        [_template_message(message) for message in request.messages],
        add_generation_prompt=request.add_generation_prompt,
        extra=request.chat_template_kwargs or {},
        context=context,
    )
    return _job(
        request,
        text,
        [prompt],
        prefix="chatcmpl",
        max_tokens=request.max_completion_tokens or request.max_tokens,
        logprobs=(request.top_logprobs or 0) if request.logprobs else None,
        context=context,
        echo=[""],
        param="messages",
    )


def completion_job(request: CompletionRequest, text: Text, context: int) -> Job:
    """Prepare a completion request for a model with room for `context` tokens."""
    prompts = [
        text.encode(prompt, context) if isinstance(prompt, str) else prompt
        for prompt in split_prompts(request.prompt)
    ]
    return _job(
        request,
        text,
        prompts,
        prefix="cmpl",
        max_tokens=request.max_tokens or COMPLETION_TOKENS,
        logprobs=request.logprobs,
        context=context,
        echo=[
            text.decode(prompt) if request.echo and request.logprobs is None else ""
            for prompt in prompts
        ],
        score_prompts=bool(request.echo) and request.logprobs is not None,
        param="prompt",
    )


def split_prompts(prompt: str | Sequence[str | int | list[int]]) -> list[str | list[int]]:
    """Return each prompt of the four forms that the API allows."""
    if isinstance(prompt, str):
        return [prompt]
    texts = [item for item in prompt if isinstance(item, str)]
    tokens = [item for item in prompt if isinstance(item, int)]
    lists = [item for item in prompt if isinstance(item, list)]
    if len(tokens) == len(prompt):
        return [tokens]
    if len(prompt) not in (len(texts), len(lists)):
        raise ApiError("prompt mixes texts, tokens and lists of tokens", param="prompt")
    return [*texts, *lists]


def _template_message(message: msgspec.Struct) -> dict[str, object]:
    """Return a message as templates expect it: a dict whose content is one text."""
    fields: dict[str, object] = msgspec.to_builtins(message)
    if isinstance(content := fields.get("content"), list):
        fields["content"] = "".join(part["text"] for part in content)
    return {"content": None, **fields}


def _job(
    request: ChatRequest | CompletionRequest,
    text: Text,
    prompts: list[list[int]],
    *,
    prefix: str,
    max_tokens: int | None,
    logprobs: int | None,
    context: int,
    echo: list[str],
    param: str,
    score_prompts: bool = False,
) -> Job:
    job_id = request.rid or f"{prefix}-{uuid.uuid4().hex}"
    prompts = [_checked(prompt, text, param) for prompt in prompts]
    copies = request.n or 1
    return Job(
        id=job_id,
        copies=copies,
        sequences=[
            Generate(
                # A client may use its rid again; late news of the old one must not reach the new.
                rid=f"{job_id}.{next(_serial)}",
                tokens=prompt,
                max_new_tokens=_room(prompt, max_tokens, context, param),
                temperature=_default(request.temperature, 1.0),
                top_p=_default(request.top_p, 1.0),
                top_k=max(0, request.top_k or 0),
                min_p=request.min_p or 0.0,
                seed=None if request.seed is None else request.seed + copy,
                stop_tokens=[
                    *(() if request.ignore_eos else text.eos),
                    *(request.stop_token_ids or ()),
                ],
                logprobs=logprobs,
                frequency_penalty=request.frequency_penalty or 0.0,
                presence_penalty=request.presence_penalty or 0.0,
                repetition_penalty=_default(request.repetition_penalty, 1.0),
                priority=request.priority or 0,
                prompt_logprobs=score_prompts,
            )
            for prompt in prompts
            for copy in range(copies)
        ],
        stops=(request.stop,) if isinstance(request.stop, str) else tuple(request.stop or ()),
        prompt_tokens=sum(map(len, prompts)),
        stream=bool(request.stream),
        include_usage=bool(request.stream_options and request.stream_options.include_usage),
        echo=tuple(words for words in echo for _ in range(copies)),
    )


def _default(value: float | None, default: float) -> float:
    return default if value is None else value


def _checked(prompt: list[int], text: Text, param: str) -> list[int]:
    """Return the prompt, or what stands for an empty one; refuse tokens nobody knows."""
    if not prompt:
        if text.bos is None:
            raise ApiError("the prompt is empty", param=param)
        return [text.bos]
    if (largest := max(prompt)) >= text.vocab_size:
        raise ApiError(
            f"token {largest} is not in the vocabulary of {text.vocab_size}", param=param
        )
    return prompt


def _room(prompt: list[int], max_tokens: int | None, context: int, param: str) -> int:
    """Return how many tokens may be generated; refuse what the context cannot hold."""
    room = context - len(prompt)
    if room < 1:
        raise ApiError(
            f"the prompt has {len(prompt)} tokens; with one token of answer the context of "
            f"{context} tokens cannot hold it",
            param=param,
            code="context_length_exceeded",
        )
    if max_tokens is not None and max_tokens > room:
        raise ApiError(
            f"the prompt has {len(prompt)} tokens and max_tokens asks for {max_tokens}: more than "
            f"the context of {context} tokens",
            param="max_tokens",
            code="context_length_exceeded",
        )
    return room if max_tokens is None else max_tokens
