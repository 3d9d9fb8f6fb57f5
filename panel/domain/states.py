"""States of launches and processes, each with a sign that is readable without colour."""

from __future__ import annotations

from enum import StrEnum


class LaunchState(StrEnum):
    """What a launch is doing, or how it ended."""

    LAUNCHING = "launching"
    SERVING = "serving"
    STOPPING = "stopping"
    FAILING = "failing"
    """A rank died; the survivors' evidence is being taken."""
    STOPPED = "stopped"
    """Ended by the operator."""
    CRASHED = "crashed"
    REFUSED = "refused"
    """Ended before any rank existed, because of flags, plan or port."""
    LOST = "lost"
    """The keeper or the host went away; how the ranks ended is not known."""

    @property
    def live(self) -> bool:
        """Whether processes of the gang may exist."""
        return self in (self.LAUNCHING, self.SERVING, self.STOPPING, self.FAILING)

    @property
    def failed(self) -> bool:
        """Whether the launch ended otherwise than the operator wished."""
        return self in (self.CRASHED, self.REFUSED, self.LOST)


class ProcessState(StrEnum):
    """What a rank, the front end or another process of a gang is doing."""

    BUSY = "busy"
    """In a phase before serving."""
    SERVING = "serving"
    STALE = "stale"
    """Alive, but its heartbeat is old."""
    STOPPED = "stopped"
    """Ended because the gang was stopped."""
    FAILED = "failed"


SIGNS: dict[ProcessState, str] = {
    ProcessState.BUSY: "◐",
    ProcessState.SERVING: "●",
    ProcessState.STALE: "?",
    ProcessState.STOPPED: "■",
    ProcessState.FAILED: "✖",
}

ASCII_SIGNS: dict[ProcessState, str] = {
    ProcessState.BUSY: "~",
    ProcessState.SERVING: "R",
    ProcessState.STALE: "?",
    ProcessState.STOPPED: "S",
    ProcessState.FAILED: "X",
}

AS_PROCESS: dict[LaunchState, ProcessState] = {
    LaunchState.LAUNCHING: ProcessState.BUSY,
    LaunchState.SERVING: ProcessState.SERVING,
    LaunchState.STOPPING: ProcessState.BUSY,
    LaunchState.FAILING: ProcessState.FAILED,
    LaunchState.STOPPED: ProcessState.STOPPED,
    LaunchState.CRASHED: ProcessState.FAILED,
    LaunchState.REFUSED: ProcessState.FAILED,
    LaunchState.LOST: ProcessState.STALE,
}
"""A launch bears the sign of a process that fares like it."""
