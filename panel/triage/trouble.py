"""What fails requests while the engine goes on: no failure of the launch, but not nothing."""

from __future__ import annotations

import re

from panel.triage.cause import Cause, subject
from panel.triage.scene import Scene

_NUMBER = re.compile(r"\d+")
_MARKS = 3


def find_trouble(scene: Scene) -> Cause | None:
    """Return what fails requests, by the ranks that were named first; None where nothing does."""
    told = [mark for mark in scene.live("trouble") if mark.grave]
    marks = [mark for mark in told if mark.groups.get("rank")] or told
    if not marks or marks[0].signature is None:
        return None
    first, signature = marks[0], marks[0].signature
    named = "0" if scene.world == 1 else first.groups.get("rank", "")
    roots = scene.blamed({int(each) for each in _NUMBER.findall(named)})
    return Cause(
        signature.kind, roots, first.t, subject(roots, "the model"), signature.what, "high",
        "serving", tuple(marks[:_MARKS]), detail=first.groups.get("detail", first.text),
    )  # fmt: skip
