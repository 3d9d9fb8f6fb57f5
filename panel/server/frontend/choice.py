"""One choice of an answer: tokens of one sequence becoming text."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from panel.server.frontend.detokenizer import Detokenizer
from panel.server.frontend.stops import StopMatcher
from panel.server.messages import Finish, TokenLogprob, Tokens


@dataclass(frozen=True, slots=True)
class Scored:
    """The log probabilities of one token."""

    start: int
    """Where the token begins in the text of the choice, in characters."""
    end: int
    token: int
    logprob: TokenLogprob | None
    """None for the first token of a prompt: nothing comes before it."""


@dataclass(frozen=True, slots=True)
class Piece:
    """What a client gets next of one choice."""

    index: int
    text: str
    scored: tuple[Scored, ...]
    finish: Finish | None


class ScoredPrompt:
    """A prompt that is repeated with the log probabilities of its tokens."""

    def __init__(self, tokens: Sequence[int], detokenizer: Detokenizer) -> None:
        self._tokens = tokens
        self._detokenizer = detokenizer
        self._logprobs: list[TokenLogprob | None] = [None]

    def push(self, logprobs: Sequence[TokenLogprob]) -> bool:
        """Add those of the next tokens; True once all are there."""
        self._logprobs += logprobs
        return len(self._logprobs) >= len(self._tokens)

    def shown(self) -> tuple[str, list[Scored]]:
        """Return the text and its tokens."""
        text = ""
        scored = []
        for token, logprob in zip(self._tokens, self._logprobs, strict=True):
            begin = len(text)
            text += self._detokenizer.push(token)
            scored.append(Scored(begin, len(text), token, logprob))
        return text + self._detokenizer.flush(), scored


class Choice:
    """Collects what rank 0 says of one sequence and gives it out in pieces."""

    def __init__(
        self,
        index: int,
        detokenizer: Detokenizer,
        stops: tuple[str, ...],
        prompt: ScoredPrompt | None = None,
    ) -> None:
        """`prompt` comes before the answer, where its tokens are wanted with their scores."""
        self.index = index
        self.finish: Finish | None = None
        self.tokens = 0
        """Tokens generated, up to the one that completed a stop string."""
        self.cached_tokens = 0
        self.fresh = 0
        """Tokens since the last piece."""
        self._detokenizer = detokenizer
        self._stops = StopMatcher(stops)
        self._prompt = prompt
        self._text = ""
        self._scored: list[Scored] = []
        self._decoded = 0
        self._shown = 0

    def push(self, news: Tokens) -> None:
        """Add news; nothing counts after the finish."""
        self.cached_tokens = max(self.cached_tokens, news.cached_tokens)
        self._push_prompt(news.prompt_logprobs or [])
        for place, token in enumerate(news.tokens):
            if self.finish is not None:
                return
            self._push_token(token, news.logprobs[place] if news.logprobs else None)
        if news.finish is not None and self.finish is None:
            self._show(self._detokenizer.flush())
            if self.finish is None:
                self.finish = news.finish
                self._give(self._stops.flush())

    def take(self) -> Piece:
        """Return what can be shown since the last piece."""
        ready = [entry for entry in self._scored if self._settled(entry)]
        self._scored = self._scored[len(ready) :]
        piece = Piece(self.index, self._text, tuple(ready), self.finish)
        self._text = ""
        self.fresh = 0
        return piece

    def _push_prompt(self, logprobs: list[TokenLogprob]) -> None:
        """Begin with the prompt, once all of its scores are there."""
        if self._prompt is not None and self._prompt.push(logprobs):
            self._text, self._scored = self._prompt.shown()
            self._decoded = self._shown = len(self._text)
            self._prompt = None

    def _push_token(self, token: int, logprob: TokenLogprob | None) -> None:
        self.tokens += 1
        self.fresh += 1
        start = self._decoded
        self._show(self._detokenizer.push(token))
        if logprob is not None:
            self._scored.append(Scored(start, self._decoded, token, logprob))

    def _show(self, text: str) -> None:
        self._decoded += len(text)
        self._give(self._stops.push(text))
        if self._stops.matched:
            self.finish = "stop"

    def _give(self, text: str) -> None:
        self._shown += len(text)
        self._text += text

    def _settled(self, entry: Scored) -> bool:
        """Whether a token may be shown: all of it is, or, at a stop string, its beginning is."""
        return entry.end <= self._shown or (self.finish is not None and entry.start < self._shown)
