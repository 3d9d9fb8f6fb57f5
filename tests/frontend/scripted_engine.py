"""Rank 0 as the tests of the front end need it: hears everything, says what it is told."""

from __future__ import annotations

import asyncio
import socket
from collections.abc import Callable
from typing import TypeVar

import msgspec

from panel.server.messages import (
    Frames,
    FromEngine,
    Generate,
    RankMemory,
    Started,
    Stats,
    Step,
    ToEngine,
    TokenLogprob,
    Tokens,
    encode,
)

Message = TypeVar("Message", bound=msgspec.Struct)
DEADLINE = 10.0

STARTED = Started(
    max_total_tokens=4096,
    max_context=64,
    buckets=[1, 2, 4],
    phases={"weights": 0.5},
    memory=[RankMemory({"weights": 1000}, {"weights": 1024}, 2048)],
    collectives=[(1024, "shm", 120.0)],
)
STATS = Stats(
    running=3,
    waiting=1,
    kv_used=100,
    kv_total=4096,
    steps=50,
    prompt_tokens=200,
    generated_tokens=40,
    preemptions=2,
    kv_cached=64,
    cached_tokens=50,
    prefill_steps=9,
    decode_steps=[(1, 30), (4, 11)],
    spec_drafts=10,
    spec_draft_tokens=30,
    spec_accepted_tokens=12,
    spec_accepted_per_position=[7, 4, 1],
    spec_cycles=8,
    spec_foreseen=6,
    step_ms=5.0,
)


async def until(condition: Callable[[], bool]) -> None:
    """Wait until a condition holds."""
    async with asyncio.timeout(DEADLINE):
        while not condition():
            await asyncio.sleep(0.002)


class ScriptedEngine:
    """The other end of the link. `answer` gives the news for each sequence, a step each."""

    def __init__(self) -> None:
        self.answer: Callable[[Generate], list[Tokens]] | None = None
        self.received: list[ToEngine] = []
        self._heard = asyncio.Condition()

    async def attach(self, sock: socket.socket) -> None:
        """Start to listen."""
        self._reader, self._writer = await asyncio.open_connection(sock=sock)
        self._listening = asyncio.create_task(self._listen())

    def say(self, message: FromEngine) -> None:
        """Send a message to the front end."""
        self._writer.write(encode(message))

    async def expect(self, kind: type[Message], count: int = 1) -> Message:
        """Wait for the `count`-th message of a kind and return it."""

        def found() -> list[Message]:
            return [message for message in self.received if isinstance(message, kind)]

        async with asyncio.timeout(DEADLINE), self._heard:
            await self._heard.wait_for(lambda: len(found()) >= count)
        return found()[count - 1]

    async def hang_up(self) -> None:
        """Go away, as a killed rank 0 does."""
        self._listening.cancel()
        await asyncio.gather(self._listening, return_exceptions=True)
        self._writer.close()
        await self._writer.wait_closed()

    async def _listen(self) -> None:
        frames = Frames()
        decoder = msgspec.msgpack.Decoder(ToEngine)
        while data := await self._reader.read(65536):
            for body in frames.feed(data):
                message = decoder.decode(body)
                if isinstance(message, Generate) and self.answer is not None:
                    for tokens in self.answer(message):
                        self.say(Step([tokens]))
                async with self._heard:
                    self.received.append(message)
                    self._heard.notify_all()


def reply(
    tokens: list[int], size: int = 1, finish: str = "stop"
) -> Callable[[Generate], list[Tokens]]:
    """Return an answer that says `tokens`, `size` of them a step, and then finishes.

    Where the request asks for log probabilities, token n gets -n, its rival n+1 gets -n-1; those of
    a prompt come in two parts.
    """

    def answer(request: Generate) -> list[Tokens]:
        def score(*scored: int) -> list[TokenLogprob] | None:
            if request.logprobs is None:
                return None
            return [
                TokenLogprob(token, -float(token), [(token + 1, -token - 1.0)][: request.logprobs])
                for token in scored
            ]

        parts = [request.tokens[1:3], request.tokens[3:]] if request.prompt_logprobs else []
        prompt = [Tokens(request.rid, [], prompt_logprobs=score(*part)) for part in parts]
        news = [Tokens(request.rid, [token], score(token)) for token in tokens]
        return [*prompt, *news, Tokens(request.rid, [], finish=finish)]

    return answer
