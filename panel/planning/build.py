"""Profile and request → plan."""

from __future__ import annotations

from collections.abc import Mapping

import msgspec

from panel.domain.flags import Profile, Request, Toggle
from panel.domain.plan import Plan, Problem, Resolved, changes
from panel.domain.redact import redact_values
from panel.engines.base import Engine
from panel.planning.forecast import forecast
from panel.planning.nodes import first_node_flags

_TOGGLES: tuple[Toggle, ...] = ("ep", "spec", "graphs")


def change_request(
    engine: Engine,
    profile: Profile,
    base: Request,
    set: Mapping[str, str],  # noqa: A002
    unset: tuple[str, ...] = (),
) -> Request:
    """Return `base` with flags set and taken back, neutral names translated to the engine's own.

    Where a neutral name and a flag it stands for are both set, the flag has its way. Raises
    `UsageError` for what the engine does not know.
    """
    own = {name: text for name, text in set.items() if name not in _TOGGLES}
    around = resolve_flags(profile, base.changed(own, unset))
    wanted: dict[str, str | None] = {}
    for name in unset:
        wanted |= dict.fromkeys(_meant(engine, name))
    for toggle in _TOGGLES:
        if toggle in set:
            wanted |= engine.neutral(toggle, set[toggle], around)
    wanted |= own
    changed = base.changed(
        {name: text for name, text in wanted.items() if text is not None},
        tuple(name for name, text in wanted.items() if text is None),
    )
    engine.check(resolve_flags(profile, changed))
    return msgspec.structs.replace(
        changed, unset=tuple(name for name in changed.unset if name in profile.flags)
    )


def resolve_flags(profile: Profile, request: Request) -> dict[str, str]:
    """Return the flags of a launch without those that the panel adds."""
    kept = {name: text for name, text in profile.flags.items() if name not in request.unset}
    return kept | request.set


def build_plan(
    engine: Engine,
    profile: Profile,
    request: Request,
    *,
    before: Mapping[str, str] | None = None,
    problems: tuple[Problem, ...] = (),
) -> Plan:
    """Return the plan of a request as `change_request` leaves it; secrets are redacted.

    `before`: the flags to compare with, redacted; `problems`: what the caller knows of the node.
    """
    values = resolve_flags(profile, request)
    shown = redact_values(values)
    # Where it runs on other nodes, those say whether they have it.
    missing = None if profile.nodes else engine.missing()
    absent = () if missing is None else (Problem(severity="refusal", text=missing),)
    known = forecast(engine, profile, first_node_flags(engine, profile) | values)
    return Plan(
        request=msgspec.structs.replace(request, set=redact_values(request.set)),
        engine=engine.name,
        version=engine.version(),
        world_size=engine.world_size(values),
        flags=tuple(
            Resolved(name=name, value=text, origin="request" if name in request.set else "profile")
            for name, text in shown.items()
        ),
        argv=tuple(f"--{name}={text}" for name, text in shown.items()),
        chips=engine.chips(values),
        overrides=known.overrides,
        memory=known.memory,
        fit=known.fit,
        capabilities=known.capabilities,
        problems=(*absent, *known.problems, *problems),
        nodes=tuple(node.name for node in profile.nodes),
        changes=() if before is None else changes(dict(before), shown),
    )


def _meant(engine: Engine, name: str) -> tuple[str, ...]:
    """Return the flags that an unset name stands for."""
    toggled = tuple(flag.name for flag in engine.flags() if flag.toggle == name)
    if not toggled and all(flag.name != name for flag in engine.flags()):
        engine.check({name: ""})
    return toggled or (name,)
