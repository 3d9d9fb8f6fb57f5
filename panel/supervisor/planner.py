"""Bodies of requests → what is to be launched."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import NamedTuple

import msgspec

from panel.config.home import Home
from panel.config.profiles import load_profile
from panel.domain.errors import RefusedError, UsageError
from panel.domain.flags import Profile, Request
from panel.domain.gpu import GpuSample
from panel.domain.plan import Plan
from panel.domain.wire import Relaunch, Up
from panel.engines.base import Engine
from panel.planning.build import build_plan, change_request, resolve_flags
from panel.planning.hardware import at_hand
from panel.planning.nodes import node_problems
from panel.supervisor.checks import disk_problems, port_problems

_MASK = "***"


class Prepared(NamedTuple):
    """A launch that could be started. Only the plan is fit to be shown."""

    engine: Engine
    profile: Profile
    request: Request
    values: dict[str, str]
    plan: Plan

    def refuse(self, force: bool = False) -> None:
        """Raise `RefusedError` where the plan says that it cannot work."""
        if self.plan.refused and not force:
            against = [each for each in self.plan.problems if each.severity == "refusal"]
            mends = {name: text for each in against for name, text in each.remedy.items()}
            words = (
                f"--set {name}={text}" if text else f"--unset {name}"
                for name, text in mends.items()
            )
            raise RefusedError("; ".join(each.text for each in against), " ".join(words))


class Basis(NamedTuple):
    """What a request is measured against: the launch that runs, or the last one."""

    request: Request
    flags: Mapping[str, str]
    address: tuple[str, int] | None
    """What the running gang binds; None where none runs."""


class Planner:
    """Makes plans with the profiles of a home."""

    def __init__(
        self,
        home: Home,
        find_engine: Callable[[str], Engine],
        default: str,
        gpus: Callable[[], Iterable[GpuSample]] = tuple,
    ) -> None:
        """`gpus` tells the node's GPUs, none where they are not known."""
        self._home = home
        self._find_engine = find_engine
        self._default = default
        self._gpus = gpus

    def up(self, body: Up, basis: Basis | None) -> Prepared:
        """Plan a launch from a profile. Raises `UsageError`, `NotFoundError`."""
        last = basis.request.profile if basis else self._default
        profile = body.recipe or load_profile(self._home, body.profile or last)
        return self._prepare(profile, Request(profile=profile.name), body.set, (), basis)

    def relaunch(self, body: Relaunch, basis: Basis | None) -> Prepared:
        """Plan a launch from the last request. Raises `UsageError`, `NotFoundError`."""
        last = basis.request if basis else Request(profile=self._default)
        profile = load_profile(self._home, body.profile or last.profile)
        same = profile.name == last.profile and not body.reset
        base = last if same else Request(profile=profile.name)
        return self._prepare(profile, base, body.set, body.unset, basis)

    def engine(self, profile: Profile | str | None, basis: Basis | None) -> Engine:
        """Return the engine of a profile (None: of the last one), as it is installed. Raises
        `UsageError`, `NotFoundError`."""
        if isinstance(profile, Profile):
            return self._engine(profile)
        last = basis.request.profile if basis else self._default
        return self._engine(load_profile(self._home, profile or last))

    def _engine(self, profile: Profile) -> Engine:
        return self._find_engine(profile.engine).at(profile.installation)

    def _prepare(
        self,
        profile: Profile,
        base: Request,
        set: Mapping[str, str],  # noqa: A002
        unset: tuple[str, ...],
        basis: Basis | None,
    ) -> Prepared:
        engine = self._engine(profile)
        # The GPUs of this node say nothing of others.
        gpus = () if profile.nodes and profile.hardware else self._gpus()
        hardware = at_hand(gpus, profile.hardware)
        profile = msgspec.structs.replace(profile, hardware=hardware)
        request = change_request(engine, profile, base, set, unset)
        masked = [name for name, text in request.set.items() if text == _MASK]
        if masked:
            raise UsageError(
                f"{masked[0]} is not kept over a restart of the supervisor",
                f"pass it again: --set {masked[0]}=…, or leave it out: --unset {masked[0]}",
            )
        values = resolve_flags(profile, request)
        address = engine.address(values)
        problems = disk_problems(self._home.state)
        if profile.nodes:
            problems = (*node_problems(engine, profile, values), *problems)
        elif basis is None or address != basis.address:
            problems = (*port_problems(*address), *problems)
        before = basis.flags if basis else None
        plan = build_plan(engine, profile, request, before=before, problems=problems)
        return Prepared(engine, profile, request, values, plan)
