"""Which fast paths of an engine really exist on some GPUs."""

from __future__ import annotations

import functools
import tomllib
from pathlib import Path
from typing import Literal

import msgspec

from panel.domain.plan import Capability, Problem
from panel.planning.scene import Scene

_TABLE = Path(__file__).with_suffix(".toml")


class Entry(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """One path, and where it holds."""

    path: str
    state: Literal["there", "silently off", "opt-in", "refused"]
    why: str
    source: str
    unlock: str = ""
    engine: str = ""
    span: str = ""
    capability: tuple[str, ...] = ()
    link: str = ""
    gpus: int = 0
    """At least so many ranks."""
    flags: tuple[str, ...] = ()

    def holds(self, scene: Scene, ranks: int) -> bool:
        """Whether it is about this engine on these GPUs."""
        assert scene.hardware is not None
        capability = scene.hardware.capability
        return (
            self.engine in ("", scene.engine)
            and scene.of(self.span)
            and self.link in ("", scene.hardware.link)
            and ranks >= self.gpus
            and (not self.capability or _matches(capability, self.capability))
        )


def capabilities(scene: Scene, ranks: int) -> tuple[Capability, ...]:
    """Return the paths of an engine over `ranks` GPUs; none where the GPUs are not known."""
    return tuple(
        Capability(
            path=entry.path,
            state=entry.state,
            why=entry.why,
            source=entry.source,
            unlock=entry.unlock,
        )
        for entry in _found(scene, ranks)
    )


def asked_in_vain(scene: Scene, ranks: int) -> tuple[Problem, ...]:
    """Return a warning for each flag that asks for a path that is not there."""
    return tuple(
        Problem(severity="warning", text=f"{flag}: {entry.path}: {entry.why}", flag=flag)
        for entry in _found(scene, ranks)
        for flag in entry.flags
        if scene.text(flag, "false") not in ("false", "none")
    )


def _found(scene: Scene, ranks: int) -> tuple[Entry, ...]:
    if scene.hardware is None or not scene.hardware.capability:
        return ()
    first: dict[str, Entry] = {}
    for entry in _entries():
        if entry.holds(scene, ranks):
            first.setdefault(entry.path, entry)
    return tuple(first.values())


@functools.cache
def _entries() -> tuple[Entry, ...]:
    return msgspec.convert(tomllib.loads(_TABLE.read_text())["path"], tuple[Entry, ...])


def _matches(capability: str, wanted: tuple[str, ...]) -> bool:
    return capability in wanted or capability.partition(".")[0] in wanted
