"""What to do about a cause: spelled for the engine's version, never what is done already."""

from __future__ import annotations

import difflib
import re
import tomllib
from collections.abc import Mapping
from functools import cache
from importlib.resources import files

from panel.domain.verdict import Advice
from panel.domain.versions import Span
from panel.triage.cause import Cause
from panel.triage.scene import Scene
from panel.triage.signature import AdviceText

_MOST = 3
_BRACES = re.compile(r"\{([a-z0-9-]+)\}")
_SWITCH = re.compile(r"--([a-z0-9-]+)")
_UNKNOWN = re.compile(r"unrecognized arguments: --([A-Za-z0-9_.-]+)")
_FAULT = re.compile(r"\brank=(\d+)")
_DEFAULTS = {
    ("vllm", "gpu-memory-utilization"): 0.9,
    ("builtin", "mem-fraction-static"): 0.85,
}
"""Values that hold where a flag was not given."""


def advise(scene: Scene, cause: Cause) -> tuple[Advice, ...]:
    """Return at most three things to do, first the experiment that confirms, then the fix."""
    if _drill(scene, cause):
        return (Advice(confirm="it was a drill: the same launch without it", change={"fault": ""}),)
    signature = next(
        (mark.signature for mark in cause.marks if mark.signature and mark.signature.advice
         and mark.signature.kind == cause.kind), None
    ) or scene.catalog.of_kind(cause.kind)  # fmt: skip
    if signature is None:
        return ()
    found = [
        advice
        for text in signature.advice
        if _fits(scene, text) and (advice := _advice(scene, cause, text)) is not None
    ]
    return tuple(sorted(found, key=lambda each: each.confirm is None)[:_MOST])


def spell(engine: str, version: str, flag: str) -> str:
    """Return how an engine of this version calls a flag."""
    for span, name in _names().get(engine, {}).get(flag, []):
        if version and Span.parse(span).holds(version):
            return name
    return flag


def _drill(scene: Scene, cause: Cause) -> bool:
    """Return whether the rank to blame was told to fail: that needs no other remedy."""
    rank = _FAULT.search(scene.flags.get("fault", "")) if scene.engine == "builtin" else None
    return rank is not None and cause.roots != "all" and int(rank[1]) in cause.roots


def _fits(scene: Scene, text: AdviceText) -> bool:
    return (not text.engines or not scene.engine or scene.engine in text.engines) and Span.parse(
        text.versions
    ).holds(scene.version)


def _advice(scene: Scene, cause: Cause, text: AdviceText) -> Advice | None:
    change = {}
    for flag, wanted in text.set.items():
        name = spell(scene.engine, scene.version, flag)
        current = scene.flags.get(name, scene.flags.get(flag))
        value = _value(scene.engine, name, current, wanted)
        if value is not None and value == current:
            return None
        if value is not None:
            change[name] = value
    why = _BRACES.sub(lambda match: _flag(scene, cause, match[1]), text.why).rstrip("; ")
    done = [name for name in _SWITCH.findall(why) if scene.flags.get(name) == "true"]
    if done and not change:
        return None
    return Advice(confirm=why if text.confirm else None, change=change, why=why)


def _flag(scene: Scene, cause: Cause, name: str) -> str:
    if name == "near":
        return _near(scene, cause)
    return "--" + spell(scene.engine, scene.version, name)


def _near(scene: Scene, cause: Cause) -> str:
    """Return which flag of the usage text was meant."""
    match = _UNKNOWN.search(cause.detail)
    close = difflib.get_close_matches(match[1], scene.usage, n=2) if match else []
    return f"did you mean {' or '.join('--' + name for name in close)}?" if close else ""


def _value(engine: str, name: str, current: str | None, wanted: str) -> str | None:
    """Return the value that a change asks for; None where it depends on one that is not known."""
    if wanted[0] not in "+-/":
        return wanted
    try:
        now = float(current) if current else _DEFAULTS.get((engine, name))
    except ValueError:
        return None
    if now is None:
        return None
    if wanted[0] == "/":
        return str(max(1, int(now / float(wanted[1:]))))
    return f"{min(max(now + float(wanted), 0.05), 0.98):.4g}"


@cache
def _names() -> Mapping[str, Mapping[str, list[tuple[str, str]]]]:
    text = (files("panel.triage") / "flag_names.toml").read_text("utf-8")
    return tomllib.loads(text)
