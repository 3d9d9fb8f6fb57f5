"""Which node does not answer, in words, each time that this changes. Pure."""

from __future__ import annotations


class Silences:
    """Of all nodes."""

    def __init__(self) -> None:
        self._since: dict[str, float] = {}

    def look(self, name: str, since: float | None, now: float, trouble: str) -> str:
        """Return what is new of a node that is silent since a moment or not, or nothing."""
        if since is not None and name not in self._since:
            self._since[name] = since
            return f"node {name} does not answer: {trouble or 'the connection is gone'}"
        if since is None and name in self._since:
            return f"node {name} answers again, after {now - self._since.pop(name):.1f} s"
        return ""
