"""Errors of the panel: one line that names the thing, and the way out."""

from __future__ import annotations


class PanelError(Exception):
    """Something an operator can act on. `kind` is stable, `exit_code` is the command's."""

    kind = "failed"
    exit_code = 1
    status = 500

    def __init__(self, message: str, hint: str = "") -> None:
        super().__init__(message)
        self.message = message
        self.hint = hint

    def __str__(self) -> str:
        return f"{self.message} ({self.hint})" if self.hint else self.message


class UsageError(PanelError):
    """Unknown flag, bad value, or a command that does not fit the state of things."""

    kind = "usage"
    exit_code = 2
    status = 400


class BusyError(UsageError):
    """A gang runs already."""

    kind = "busy"
    status = 409


class RefusedError(PanelError):
    """The plan says that it cannot work."""

    kind = "refused"
    status = 422


class NotFoundError(PanelError):
    """No supervisor, no launch, no profile."""

    kind = "not_found"
    exit_code = 3
    status = 404


class TimedOutError(PanelError):
    """It took longer than the operator allowed."""

    kind = "timed_out"
    exit_code = 4
    status = 504
