"""Exit codes of the engine's processes: distinct, documented, true."""

from __future__ import annotations

from enum import IntEnum


class Exit(IntEnum):
    """What a process of the engine says by the code it ends with."""

    OK = 0
    """Asked to stop, drained, stopped."""
    FAILED = 1
    """An exception nobody expected; its traceback is the last thing in the log."""
    USAGE = 2
    """A flag or a combination of flags that cannot work."""
    MODEL = 10
    """The model folder is missing, corrupt or does not fit the flags."""
    MEMORY = 11
    """No room for weights, workspaces or one sequence of KV cache; or an allocation failed."""
    PORT = 12
    """The address of the API is taken or not ours to bind."""
    PEER = 13
    """Another rank went away or stopped answering; look there, not here."""
    ORPHAN = 14
    """The keeper is gone, so this process ended itself."""


WORDS: dict[int, str] = {
    Exit.OK: "ended cleanly",
    Exit.FAILED: "ended by an exception",
    Exit.USAGE: "refused its flags",
    Exit.MODEL: "could not load the model",
    Exit.MEMORY: "ran out of memory",
    Exit.PORT: "could not bind its port",
    Exit.PEER: "lost another rank",
    Exit.ORPHAN: "ended because its keeper was gone",
}
