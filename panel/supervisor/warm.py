"""The warm pair: the next launch's keeper and spawner, torch already imported."""

from __future__ import annotations

import os
from collections.abc import Mapping
from pathlib import Path

from panel.supervisor.keepers import Pair, pair_key


class Warm:
    """At most one pair that waits, and those that were dropped and have not ended yet."""

    def __init__(self, log: Path) -> None:
        self._log = log
        self._pair: Pair | None = None
        self._dropped: list[Pair] = []
        self._broken = False

    @property
    def ready(self) -> bool:
        """Whether a spawner waits that has done its imports."""
        return self._pair is not None and self._pair.ready

    def prepare(self, spawner: tuple[str, ...], env: Mapping[str, str]) -> None:
        """Start a pair where none waits. One that died is not tried again before a launch."""
        self._dropped = [pair for pair in self._dropped if _leaving(pair)]
        if self._pair is not None and not self._pair.poll():
            self._broken = True
            self._discard()
        if self._pair is None and not self._broken:
            self._pair = Pair(pair_key(spawner, env), self._log)

    def take(self, spawner: tuple[str, ...], env: Mapping[str, str]) -> Pair:
        """Return the pair that waits if it fits, else a fresh one. Raises OSError."""
        key = pair_key(spawner, env)
        self._broken = False
        if self._pair is not None and (self._pair.key != key or not self._pair.poll()):
            self._discard()
        pair, self._pair = self._pair, None
        return pair or Pair(key, self._log)

    def close(self) -> None:
        """Drop what waits, and see it end."""
        self._discard()
        for pair in self._dropped:
            pair.keeper.close()
        self._dropped = []

    def _discard(self) -> None:
        if self._pair is not None:
            self._pair.drop()
            self._dropped.append(self._pair)
            self._pair = None


def _leaving(pair: Pair) -> bool:
    if pair.poll():
        return True
    os.close(pair.keeper.pidfd)
    return False
