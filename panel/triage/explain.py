"""Hangs for which nobody can be blamed: what else of the launch explains them."""

from __future__ import annotations

from panel.triage.cause import Cause
from panel.triage.scene import Scene

_OPEN = ("hang_rpc", "unknown_hang", "health_timeout")
"""Kinds that say no more than that nothing moves."""


def explain(scene: Scene, cause: Cause | None) -> Cause | None:
    """Return the cause under the kind that explains it, itself where none does."""
    if cause is None or not cause.hung or cause.roots or cause.kind not in _OPEN:
        return cause
    return _by_fallback(scene, cause) or _by_change(scene, cause) or cause


def _by_fallback(scene: Scene, cause: Cause) -> Cause | None:
    """A warning of the start that this build has no code for the GPU."""
    hints = [mark for mark in scene.marks if mark.signature and mark.signature.role == "hint"]
    if not hints or hints[0].signature is None:
        return None
    first = hints[0].signature
    return cause._replace(
        kind=first.kind, what=first.what, confidence="low", detail=hints[0].text,
        marks=(hints[0], *cause.marks),
    )  # fmt: skip


def _by_change(scene: Scene, cause: Cause) -> Cause | None:
    """A start that hangs where nothing is new but the version of a library."""
    since, signature = scene.since, scene.catalog.of_kind("hang_dependency")
    served = scene.serving is not None or scene.phase(None) == "serving"
    if since is None or signature is None or served or since.flags or since.env:
        return None
    # A version that one of the two launches did not note tells nothing.
    changed = [each for each in since.versions if each.before and each.after]
    if not changed:
        return None
    told = ", ".join(f"{each.name} {each.before} \u2192 {each.after}" for each in changed)
    return cause._replace(
        kind=signature.kind, what=signature.what, confidence="low",
        detail=f"{told} since launch {since.launch}",
    )  # fmt: skip
