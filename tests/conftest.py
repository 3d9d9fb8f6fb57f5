"""What all tests share: a home of their own, and nothing of the developer's terminal."""

from __future__ import annotations

import os
import socket
from pathlib import Path

import pytest

# Triton decides whether it interprets kernels when it is imported, which any test may cause.
os.environ.setdefault("TRITON_INTERPRET", "1")


@pytest.fixture
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A fresh `MOEPANEL_HOME`."""
    folder = tmp_path / "home"
    monkeypatch.setenv("MOEPANEL_HOME", str(folder))
    return folder


def unused_port() -> int:
    """A port that nobody uses. It stays reserved by address reuse only: take it soon."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port: int = probe.getsockname()[1]
    return port


@pytest.fixture
def free_port() -> int:
    """A port that nobody uses."""
    return unused_port()
