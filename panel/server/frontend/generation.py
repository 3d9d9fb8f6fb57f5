"""One request on its way through the engine."""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import contextmanager

from panel.server.frontend.choice import Choice, ScoredPrompt
from panel.server.frontend.errors import ApiError
from panel.server.frontend.inbox import Inbox
from panel.server.frontend.link import Link
from panel.server.frontend.metrics import Metrics
from panel.server.frontend.prepare import Job
from panel.server.frontend.text import Text
from panel.server.frontend.usage import Usage
from panel.server.messages import Finish, Generate, Tokens


class Generation:
    """The choices of one request, fed from its inbox."""

    def __init__(self, job: Job, text: Text, link: Link, inbox: Inbox, metrics: Metrics) -> None:
        self._job = job
        self._link = link
        self._inbox = inbox
        self._metrics = metrics
        self._arrived = time.monotonic()
        self._choices = {
            sequence.rid: Choice(index, text.detokenizer(), job.stops, _prompt(sequence, text))
            for index, sequence in enumerate(job.sequences)
        }
        self._last = dict.fromkeys(self._choices, self._arrived)
        self._running = set(self._choices)

    @property
    def done(self) -> bool:
        """Whether every choice has finished."""
        return not self._running

    @property
    def choices(self) -> list[Choice]:
        """All choices, by index."""
        return list(self._choices.values())

    async def advance(self) -> list[Choice]:
        """Wait for news; return the choices that changed. Raises `ApiError` where it failed."""
        changed = {}
        for news in await self._inbox.take():
            if news.rid not in self._running:
                continue
            if news.finish == "error":
                raise ApiError(
                    f"the engine failed on this request: {news.error or 'no reason given'}",
                    status=500,
                    code="engine_error",
                )
            changed[news.rid] = self._feed(news)
        return list(changed.values())

    def usage(self) -> Usage:
        """Return the token counts so far."""
        choices = self.choices
        return Usage.of(
            prompt=self._job.prompt_tokens,
            completion=sum(choice.tokens for choice in choices),
            cached=sum(choice.cached_tokens for choice in choices[:: self._job.copies]),
        )

    def give_up(self, finish: Finish) -> None:
        """Count what has not finished as ended by `finish`."""
        for _ in self._running:
            self._metrics.finished(finish, time.monotonic() - self._arrived)
        self._running.clear()

    def _feed(self, news: Tokens) -> Choice:
        choice = self._choices[news.rid]
        now = time.monotonic()
        if news.tokens:
            if choice.tokens == 0:
                self._metrics.first_token.observe(now - self._arrived)
            else:
                self._metrics.gap(now - self._last[news.rid], len(news.tokens))
            self._last[news.rid] = now
        if news.queued is not None:
            self._metrics.queue.observe(news.queued)
        choice.push(news)
        if choice.finish is not None:
            self._running.remove(news.rid)
            self._link.end(news.rid)
            self._metrics.finished(choice.finish, now - self._arrived)
        return choice


def _prompt(sequence: Generate, text: Text) -> ScoredPrompt | None:
    scored = sequence.prompt_logprobs
    return ScoredPrompt(sequence.tokens, text.detokenizer()) if scored else None


@contextmanager
def generation(job: Job, text: Text, link: Link, metrics: Metrics) -> Iterator[Generation]:
    """Start a request; leaving it early aborts it and counts it as aborted or failed."""
    with link.request(job.id, job.sequences) as inbox:
        running = Generation(job, text, link, inbox, metrics)
        try:
            yield running
        except ApiError:
            running.give_up("error")
            raise
        finally:
            running.give_up("abort")
