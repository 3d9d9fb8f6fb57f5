"""Exit codes in words."""

from __future__ import annotations

import signal


def exit_words(code: int | None, known: dict[int, str] | None = None) -> str:
    """Return how a process ended, for people. `known` are the engine's own documented codes."""
    if code is None:
        return "ended, exit code not known"
    if code < 0:
        try:
            name = signal.Signals(-code).name
        except ValueError:
            name = f"signal {-code}"
        hint = ", perhaps by the kernel for want of memory" if code == -signal.SIGKILL else ""
        return f"killed by {name}{hint}"
    if known and code in known:
        return f"{known[code]} (exit code {code})"
    return "ended with exit code 0" if code == 0 else f"ended with exit code {code}"
