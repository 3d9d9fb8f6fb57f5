"""A rule between flags, as data: for which versions, when it holds, what it says."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import NamedTuple

from panel.domain.plan import Override, Problem, Severity
from panel.planning.scene import Scene, Settled

Test = Callable[[Scene], bool]
Words = str | Callable[[Scene], str]


class Rule(NamedTuple):
    """What the engine refuses, or what an operator should know."""

    severity: Severity
    span: str
    """Versions, such as `>=0.5.9,<0.5.15`; empty for all."""
    when: Test
    text: Words
    flag: str
    source: str
    """Where the fact is from: a place in the engine's source, or a thread."""
    remedy: Callable[[Scene], dict[str, str]] = lambda scene: {}


class Silent(NamedTuple):
    """What the engine sets or changes itself; later ones see the work of earlier ones."""

    span: str
    flag: str
    """In capitals: a variable of the environment."""
    when: Test
    resolved: Words
    reason: Words
    source: str


def judge(rules: Iterable[Rule], scene: Scene) -> tuple[Problem, ...]:
    """Return what the rules that hold say of a scene."""
    return tuple(
        Problem(
            severity=rule.severity,
            text=_words(rule.text, scene),
            flag=rule.flag,
            remedy=rule.remedy(scene),
            source=rule.source,
        )
        for rule in rules
        if scene.of(rule.span) and rule.when(scene)
    )


def settle(silents: Iterable[Silent], scene: Scene) -> Settled:
    """Return the scene that the engine makes of `scene`."""
    overrides = []
    for silent in silents:
        if not scene.of(silent.span) or not silent.when(scene):
            continue
        name, resolved = silent.flag, _words(silent.resolved, scene)
        given = scene.env if name.isupper() else scene.values
        if given.get(name) == resolved:
            continue
        overrides.append(
            Override(
                name=name,
                requested=given.get(name),
                resolved=resolved,
                reason=_words(silent.reason, scene),
                source=silent.source,
            )
        )
        if name.isupper():
            scene = scene._replace(env={**scene.env, name: resolved})
        else:
            scene = scene.with_values({name: resolved})
    return Settled(scene, tuple(overrides))


def _words(words: Words, scene: Scene) -> str:
    return words if isinstance(words, str) else words(scene)
