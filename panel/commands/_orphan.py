"""A gang whose supervisor is gone: it goes on serving until the next supervisor adopts it."""

from __future__ import annotations

import json
from pathlib import Path

from panel.commands._launches import evidence_numbers
from panel.config.home import Home
from panel.supervisor import procfs
from panel.supervisor.start import answers, ensure_running


def orphan(home: Home) -> int | None:
    """Return the launch whose keeper lives although no supervisor answers."""
    numbers = evidence_numbers(home.launches)
    if not numbers or answers(home.socket):
        return None
    try:
        keeper = json.loads((home.launch(numbers[-1]) / "keeper.json").read_bytes())
        alive = procfs.is_alive(keeper["pid"], keeper["start_ticks"])
    except (OSError, ValueError, KeyError):
        return None
    return numbers[-1] if alive else None


def adopted(home: Home) -> Path:
    """Return the supervisor's socket; where a gang has outlived its supervisor, start another."""
    return home.socket if orphan(home) is None else ensure_running(home)
