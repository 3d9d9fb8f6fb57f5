"""The link with rank 0: one socket, one read, one inbox a request."""

from __future__ import annotations

import asyncio
from collections import defaultdict, deque
from collections.abc import Iterator
from contextlib import contextmanager
from itertools import chain
from typing import Any, TypeVar

import msgspec

from panel.server.frontend.errors import ApiError
from panel.server.frontend.inbox import Inbox
from panel.server.messages import (
    Abort,
    Drain,
    Flush,
    Flushed,
    Frames,
    FromEngine,
    Generate,
    Rebalance,
    Rebalanced,
    Started,
    Stats,
    Step,
    Stopped,
    ToEngine,
    Tokens,
    encode,
)
from panel.server.phases import Phase

LOST = "rank 0 is gone without a word; look in the log of rank 0"

Answer = TypeVar("Answer", Flushed, Rebalanced)


class Link(asyncio.Protocol):
    """The front end's end of the socket pair."""

    def __init__(self) -> None:
        self.started: Started | None = None
        self.stats: Stats | None = None
        self.draining = False
        self.loss = LOST
        """Why rank 0 is gone, once it is: its last words where it had time for them."""
        self.closed = asyncio.Event()
        """Set once rank 0's end is closed."""
        self._frames = Frames()
        self._decoder = msgspec.msgpack.Decoder(FromEngine)
        self._transport: asyncio.WriteTransport | None = None
        self._requests: dict[str, Inbox] = {}
        self._inboxes: dict[str, Inbox] = {}
        self._asked: dict[type, deque[asyncio.Future[Any]]] = defaultdict(deque)
        """Questions that wait, by the kind of answer: rank 0 answers in order."""

    @property
    def phase(self) -> Phase:
        """Where the front end stands: it serves once rank 0 has said that it does."""
        if not self.alive:
            return Phase.STOPPED
        if self.draining:
            return Phase.DRAINING
        return Phase.SPAWN if self.started is None else Phase.SERVING

    @property
    def alive(self) -> bool:
        """Whether rank 0 can hear us."""
        return not self.closed.is_set()

    @property
    def running(self) -> int:
        """Requests that have not ended."""
        return len(self._requests)

    @property
    def open(self) -> int:
        """Sequences that have not finished."""
        return len(self._inboxes)

    @contextmanager
    def request(self, request_id: str, sequences: list[Generate]) -> Iterator[Inbox]:
        """Start the sequences of one request; leaving aborts those that have not finished."""
        if request_id in self._requests:
            raise ApiError(f"rid {request_id!r} is already running", param="rid")
        inbox = Inbox(sequence.rid for sequence in sequences)
        self._requests[request_id] = inbox
        self._inboxes |= dict.fromkeys(inbox.open, inbox)
        try:
            self._send(*sequences)
            if not self.alive:
                inbox.fail(self.loss)
            yield inbox
        finally:
            del self._requests[request_id]
            for rid in list(inbox.open):
                self.end(rid)

    def end(self, rid: str) -> None:
        """Stop one sequence; rank 0's later news of it are dropped."""
        if (inbox := self._inboxes.pop(rid, None)) is not None:
            inbox.open.discard(rid)
            self._send(Abort(rid))

    def abort(self, request_id: str | None = None) -> int:
        """End one request (None: all) with finish `abort`; return how many there were."""
        wanted = [request_id] if request_id is not None else list(self._requests)
        inboxes = [self._requests[name] for name in wanted if name in self._requests]
        for inbox in inboxes:
            for rid in list(inbox.open):
                self.end(rid)
                inbox.put(Tokens(rid, [], finish="abort"))
        return len(inboxes)

    def drain(self, seconds: float) -> None:
        """Tell rank 0 to finish; abort what still runs after `seconds`."""
        self.draining = True
        self._send(Drain(seconds))
        asyncio.get_running_loop().call_later(seconds, self.abort)

    async def flush(self) -> int:
        """Forget the cached prompts that nobody uses; return their tokens."""
        return (await self._ask(Flush(), Flushed)).tokens

    async def rebalance(self) -> Rebalanced:
        """Put the experts where their load asks for them."""
        return await self._ask(Rebalance(), Rebalanced)

    async def _ask(self, question: ToEngine, kind: type[Answer]) -> Answer:
        answer: asyncio.Future[Answer] = asyncio.get_running_loop().create_future()
        self._asked[kind].append(answer)
        self._send(question)
        return await answer

    def close(self) -> None:
        """Hang up."""
        if self._transport is not None:
            self._transport.close()

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Called by the event loop."""
        assert isinstance(transport, asyncio.WriteTransport)
        self._transport = transport

    def data_received(self, data: bytes) -> None:
        """Called by the event loop with what one read brought."""
        for body in self._frames.feed(data):
            match self._decoder.decode(body):
                case Step(news):
                    for tokens in news:
                        self._deliver(tokens)
                case Stats() as stats:
                    self.stats = stats
                case Started() as started:
                    self.started = started
                case Flushed() | Rebalanced() as answer:
                    waiting = self._asked[type(answer)].popleft()
                    if not waiting.done():
                        waiting.set_result(answer)
                case Stopped(reason):
                    self.loss = f"the engine stopped: {reason}"

    def connection_lost(self, _: Exception | None) -> None:
        """Called by the event loop when rank 0 has gone."""
        self.closed.set()
        for inbox in self._requests.values():
            inbox.fail(self.loss)
        for answer in chain.from_iterable(self._asked.values()):
            if not answer.done():
                answer.set_exception(ApiError(self.loss, status=503, code="engine_unavailable"))

    def _deliver(self, tokens: Tokens) -> None:
        inbox = self._inboxes.get(tokens.rid)
        if inbox is None:
            return
        if tokens.finish is not None:
            del self._inboxes[tokens.rid]
        inbox.put(tokens)

    def _send(self, *messages: ToEngine) -> None:
        """Send all at once: rank 0 begins with what it finds in its first look."""
        if self.alive and self._transport is not None:
            self._transport.write(b"".join(map(encode, messages)))
