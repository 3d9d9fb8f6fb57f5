"""An advice in one line, the same on screens, on the command line and in reports. Pure."""

from __future__ import annotations

from collections.abc import Mapping

from panel.domain.verdict import Advice

RELAUNCH = "moepanel relaunch "


def advice_words(advice: Advice, command: str = "") -> str:
    """Return `the same launch without it (--unset fault)`; `command`: what takes the flags."""
    flags = flag_words(advice.change)
    flags = f"{command}{flags}" if flags else ""
    text = advice.confirm or advice.why
    return f"{text} ({flags})" if text and flags else text or flags


def kind_of(advice: Advice) -> str:
    """Return whether it is an experiment that confirms, or the fix."""
    return "confirm" if advice.confirm else "fix"


def flag_words(change: Mapping[str, str]) -> str:
    """Return flags as `moepanel relaunch` takes them; an empty text is not passed."""
    return " ".join(
        f"--set {name}={text}" if text else f"--unset {name}" for name, text in change.items()
    )
