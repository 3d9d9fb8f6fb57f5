"""Keepers that are gone after the test."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.keeper.support import KeeperProcess

StartKeeper = Callable[..., KeeperProcess]


@pytest.fixture
def start_keeper(tmp_path: Path) -> Iterator[StartKeeper]:
    """Start a keeper; the arguments are those of `KeeperProcess`."""
    keepers: list[KeeperProcess] = []

    def start(**options: Any) -> KeeperProcess:
        keepers.append(KeeperProcess(tmp_path, **options))
        return keepers[-1]

    yield start
    for keeper in keepers:
        keeper.clear()
