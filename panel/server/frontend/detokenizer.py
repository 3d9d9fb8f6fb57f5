"""Tokens to text, one token at a time, never half a character."""

from __future__ import annotations

from tokenizers import Tokenizer

_REPLACEMENT = "\N{REPLACEMENT CHARACTER}"


class Detokenizer:
    """Decode a growing sequence; the pieces joined are the text of all tokens decoded at once.

    Only a window of the last tokens is decoded. It starts at a place where the text was whole, and
    one piece early, because some decoders treat the first token of a text in a special way.
    """

    def __init__(self, tokenizer: Tokenizer) -> None:
        self._tokenizer = tokenizer
        self._window: list[int] = []
        self._known = 0
        self._shown = ""

    def push(self, token: int) -> str:
        """Add a token; return the text that is certain now."""
        self._window.append(token)
        text = self._tokenizer.decode(self._window)
        if text.endswith(_REPLACEMENT) or len(text) <= len(self._shown):
            return ""
        piece = text[len(self._shown) :]
        del self._window[: self._known]
        self._known = len(self._window)
        self._shown = self._tokenizer.decode(self._window)
        return piece

    def flush(self) -> str:
        """Return the text held back: no more tokens will come."""
        piece = self._tokenizer.decode(self._window)[len(self._shown) :]
        self._window.clear()
        self._known = 0
        self._shown = ""
        return piece
