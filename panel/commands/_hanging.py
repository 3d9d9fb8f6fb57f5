"""What a supervisor that runs knows of a hang before it is a verdict."""

from __future__ import annotations

import msgspec

from panel.commands._socket import Client
from panel.config.home import Home
from panel.domain.errors import PanelError
from panel.domain.hang import HangView
from panel.domain.verdict import Evidence, Verdict


def with_suspicion(verdict: Verdict, home: Home, launch: int) -> Verdict:
    """Return the verdict on a launch; where it found nothing, with the supervisor's suspicion."""
    if verdict.status != "running" or not home.socket.exists():
        return verdict
    try:
        hang = Client(home.socket).get(f"/v1/launches/{launch}/hang", HangView)
    except PanelError:
        return verdict
    return suspected(verdict, hang)


def suspected(verdict: Verdict, hang: HangView) -> Verdict:
    """Return the verdict of a gang that is taken to be hanging, with what the steps found."""
    if hang.suspicion is None:
        return verdict
    done = [rung for rung in hang.rungs if rung.done]
    return msgspec.structs.replace(
        verdict,
        status="hung",
        headline=f"it may hang: {hang.suspicion.text}",
        kind="unknown_hang",
        family="hang",
        t_first=hang.suspicion.since,
        confidence="low",
        evidence=tuple(
            Evidence(source=rung.file or f"hang/{rung.step}", offset=0, line=1, text=rung.result)
            for rung in done
        ),
    )
