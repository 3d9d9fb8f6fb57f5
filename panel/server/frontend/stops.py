"""Stop strings over a stream of text pieces."""

from __future__ import annotations


class StopMatcher:
    """Pass text through until one of the stop strings is complete.

    The stop that completes first wins, of several that complete together the longest: so the
    outcome does not depend on how the text was cut into pieces. Text that may still become a stop
    string is held back.
    """

    def __init__(self, stops: tuple[str, ...]) -> None:
        self._stops = stops
        self._held = ""
        self.matched = False

    def push(self, text: str) -> str:
        """Add text; return what can be shown now."""
        if not self._stops:
            return text
        text = self._held + text
        found = [(at + len(stop), at) for stop in self._stops if (at := text.find(stop)) >= 0]
        if found:
            self.matched = True
            self._held = ""
            return text[: min(found)[1]]
        shown = len(text) - self._partial(text)
        self._held = text[shown:]
        return text[:shown]

    def flush(self) -> str:
        """Return the text held back: no more will come."""
        text, self._held = self._held, ""
        return text

    def _partial(self, text: str) -> int:
        """Return the length of the longest end of `text` that starts a stop string."""
        longest = min(len(text), max(map(len, self._stops)) - 1)
        for length in range(longest, 0, -1):
            tail = text[-length:]
            if any(stop.startswith(tail) for stop in self._stops):
                return length
        return 0
