"""A supervisor with the fake engine."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.supervisor.support import Supervised, supervised


@pytest.fixture
def node(tmp_path: Path) -> Iterator[Supervised]:
    """A supervisor that keeps nothing warm."""
    home = tmp_path / "home"
    home.mkdir()
    (home / "config.toml").write_text("warm = false\n")
    with supervised(home) as node:
        yield node
