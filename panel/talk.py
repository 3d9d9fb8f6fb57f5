"""The engine's chat API as the panel uses it: one streamed answer at a time."""

from __future__ import annotations

import json
from collections.abc import AsyncGenerator, Sequence
from typing import Any

import httpx
import msgspec

from panel.domain.errors import PanelError


class Turn(msgspec.Struct, frozen=True):
    """One message of a conversation."""

    role: str
    content: str


class Delta(msgspec.Struct, frozen=True):
    """A piece of an answer; `tokens` counts the whole answer where the engine said it."""

    text: str
    tokens: int | None = None


class EngineClient:
    """Chat with an OpenAI-compatible engine. Every failure is a `PanelError`."""

    def __init__(self, url: str, *, transport: httpx.AsyncBaseTransport | None = None) -> None:
        self._http = httpx.AsyncClient(
            transport=transport, base_url=url, timeout=httpx.Timeout(300.0, connect=5.0)
        )

    async def close(self) -> None:
        """Close the connections."""
        await self._http.aclose()

    async def chat(self, turns: Sequence[Turn], max_tokens: int) -> AsyncGenerator[Delta, None]:
        """Yield the answer piece by piece; closing the iterator makes the engine abort it."""
        try:
            body = {
                "model": await self._model(),
                "messages": msgspec.to_builtins(turns),
                "max_tokens": max_tokens,
                "stream": True,
                "stream_options": {"include_usage": True},
            }
            async with self._http.stream("POST", "/v1/chat/completions", json=body) as response:
                if response.is_error:
                    raise PanelError(_reason(await response.aread(), response.status_code))
                async for line in response.aiter_lines():
                    if line.startswith("data:") and line[5:].strip() != "[DONE]":
                        yield _delta(line[5:])
        except httpx.HTTPError as error:
            raise PanelError(
                f"the engine's API went away: {error or type(error).__name__}",
                "Escape, then look at the node",
            ) from None
        except (ValueError, LookupError, TypeError, AttributeError):
            raise PanelError("the engine's answer is not in the OpenAI format") from None

    async def _model(self) -> str:
        """Return the name under which the engine serves its model."""
        response = await self._http.get("/v1/models")
        if response.is_error:
            raise PanelError(_reason(response.content, response.status_code))
        name: str = response.json()["data"][0]["id"]
        return name


def _delta(data: str) -> Delta:
    chunk: dict[str, Any] = json.loads(data)
    if "error" in chunk:
        raise PanelError(_reason(data.encode(), 500))
    choices = chunk.get("choices") or [{}]
    usage = chunk.get("usage") or {}
    return Delta(
        text=choices[0].get("delta", {}).get("content") or "",
        tokens=usage.get("completion_tokens"),
    )


def _reason(body: bytes, status: int) -> str:
    try:
        return f"the engine refused: {json.loads(body)['error']['message']}"
    except (ValueError, KeyError, TypeError):
        return f"the engine answered {status}"
