"""One choice of an answer: tokens of one sequence becoming text."""

from __future__ import annotations

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
    logprob: TokenLogprob


@dataclass(frozen=True, slots=True)
class Piece:
    """What a client gets next of one choice."""

    index: int
    text: str
    scored: tuple[Scored, ...]
    finish: Finish | None


class Choice:
    """Collects what rank 0 says of one sequence and gives it out in pieces."""

    def __init__(self, index: int, detokenizer: Detokenizer, stops: tuple[str, ...]) -> None:
        self.index = index
        self.finish: Finish | None = None
        self.tokens = 0
        """Tokens generated, up to the one that completed a stop string."""
        self.cached_tokens = 0
        self.fresh = 0
        """Tokens since the last piece."""
        self._detokenizer = detokenizer
        self._stops = StopMatcher(stops)
        self._text = ""
        self._scored: list[Scored] = []
        self._decoded = 0
        self._shown = 0

    def push(self, news: Tokens) -> None:
        """Add news; nothing counts after the finish."""
        self.cached_tokens = max(self.cached_tokens, news.cached_tokens)
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

    def _push_token(self, token: int, logprob: TokenLogprob | None) -> None:
        self.tokens += 1
        self.fresh += 1
        start = self._decoded
        self._show(self._detokenizer.push(token))
        if logprob is not None:
            self._scored.append(Scored(start, self._decoded, logprob))

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
