"""Cut what arrives on a pipe into lines."""

from __future__ import annotations


class Lines:
    """Collects bytes until their newline comes."""

    def __init__(self) -> None:
        self._rest = b""

    def feed(self, data: bytes) -> list[bytes]:
        """Add `data`; return the lines that are now whole, without their newlines."""
        *lines, self._rest = (self._rest + data).split(b"\n")
        return lines
