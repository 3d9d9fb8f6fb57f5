"""Starts a launch: its folder, its spec, the order to the keeper."""

from __future__ import annotations

import platform
import sys
import time
from collections.abc import Mapping
from contextlib import suppress
from importlib.metadata import PackageNotFoundError, version
from typing import NamedTuple

import msgspec

from panel import __version__
from panel.config.home import Home
from panel.domain.events import Operator
from panel.domain.flags import Profile
from panel.domain.plan import Plan, Resolved, changes
from panel.domain.redact import redact_values
from panel.domain.since import Since
from panel.domain.wire import LaunchRecord
from panel.engines.base import Command, Engine, Policy, ProcessJob, SpawnerJob
from panel.planning.nodes import node_recipes
from panel.probes.collectives.flight import environment
from panel.probes.libraries import libraries
from panel.supervisor import procfs
from panel.supervisor.evidence import Folder, LaunchSpec, append_event, write_json
from panel.supervisor.fleet.order import LOST_S, FleetOrder, NodeOrder
from panel.supervisor.planner import Prepared
from panel.supervisor.watch.host import driver_version

_ANY_ADDRESS = ("0.0.0.0", "::", "")


class Order(msgspec.Struct, frozen=True, kw_only=True):
    """The one line that a keeper gets."""

    folder: str
    uuid: str
    t0_mono_ns: int
    env: dict[str, str]
    spawner: SpawnerJob | None
    processes: list[ProcessJob]
    policy: Policy


class Prelude(NamedTuple):
    """A launch that is ready to be written down and ordered."""

    spec: LaunchSpec
    folder: Folder
    order: Order | FleetOrder

    def write(self) -> None:
        """Make the evidence folder. Raises OSError."""
        self.folder.path.mkdir(mode=0o700)
        self.folder.flight.mkdir(mode=0o700)
        write_json(self.folder.launch, self.spec)
        append_event(self.folder, Operator(t=0.0, action="up"))

    def line(self) -> bytes:
        """Return the order as the keeper reads it."""
        return msgspec.json.encode(self.order)


def launch_env(engine: Engine, profile: Profile) -> dict[str, str]:
    """Return what a gang's environment has beyond the supervisor's own."""
    return engine.environment() | profile.env


def flight_env(folder: Folder, versions: Mapping[str, str]) -> dict[str, str]:
    """Return what makes torch record its collectives over NCCL; nothing on a node without GPUs."""
    release = versions.get("torch", "").split(".")[:2]
    if not driver_version() or len(release) < 2 or not all(part.isdecimal() for part in release):
        return {}
    return environment(folder.flight, (int(release[0]), int(release[1])))


def next_number(home: Home, last: int) -> int:
    """Return a number that neither the ledger (whose highest is `last`) nor a folder has."""
    names = (path.name for path in home.launches.iterdir())
    return 1 + max([last, *(int(name) for name in names if name.isdecimal())])


def prepare_launch(
    home: Home,
    number: int,
    prepared: Prepared,
    uuid: str,
    good: LaunchRecord | None = None,
    told: Mapping[str, str] | None = None,
) -> Prelude:
    """Return spec and order of a launch that begins now; nothing is written.

    `good`: the last good launch of the profile. `told`: what its processes find in their
    environment beside what operator and engine put there.
    """
    engine, plan = prepared.engine, prepared.plan
    folder = Folder(home.launch(number))
    env = launch_env(engine, prepared.profile)
    nodes = prepared.profile.nodes
    own = {} if nodes else engine.evidence_flags(folder.path)
    command = Command() if nodes else engine.command(prepared.values | own, folder.path)
    known = versions(ours=command.spawner is not None)
    found = libraries(prepared.profile.installation.python) | known
    spec = LaunchSpec(
        id=number,
        uuid=uuid,
        t0_unix=round(time.time(), 3),
        t0_mono_ns=time.monotonic_ns(),
        boot_id=procfs.boot_id(),
        engine=plan.engine,
        version=plan.version,
        profile=prepared.profile.name,
        world_size=plan.world_size,
        url=_api(prepared),
        argv=(*plan.argv, *(f"--{name}={text}" for name, text in own.items())),
        env=redact_values(env),
        sources=dict.fromkeys(plan.nodes) if nodes else engine.sources(prepared.values),
        plan=msgspec.structs.replace(
            plan,
            flags=(
                *plan.flags,
                *(Resolved(name=name, value=text, origin="panel") for name, text in own.items()),
            ),
        ),
        versions=found,
        outside=engine.outside,
        since=None if good is None else since(good, plan, found, redact_values(env)),
    )
    if nodes:
        return Prelude(spec, folder, fleet_order(home, prepared, spec, folder))
    order = Order(
        folder=str(folder.path),
        uuid=uuid,
        t0_mono_ns=spec.t0_mono_ns,
        env=env | flight_env(folder, known) | dict(told or {}),
        spawner=command.spawner,
        processes=command.processes,
        policy=engine.policy,
    )
    return Prelude(spec, folder, order)


def fleet_order(home: Home, prepared: Prepared, spec: LaunchSpec, folder: Folder) -> FleetOrder:
    """Return the order to the keeper of several nodes."""
    profile = prepared.profile
    recipes = node_recipes(prepared.engine, profile, prepared.values)
    return FleetOrder(
        folder=str(folder.path),
        uuid=spec.uuid,
        t0_mono_ns=spec.t0_mono_ns,
        world_size=spec.world_size,
        policy=prepared.engine.policy,
        nodes=[
            NodeOrder(
                name=node.name,
                ssh=node.ssh,
                python=node.python if node.ssh else sys.executable,
                # On this machine it must not be the supervisor that asks.
                home=node.home or ("" if node.ssh else str(home.state / "nodes" / node.name)),
                recipe=recipe,
            )
            for node, recipe in zip(profile.nodes, recipes, strict=True)
        ],
        lost_s=LOST_S,
    )


def since(good: LaunchRecord, plan: Plan, known: dict[str, str], env: dict[str, str]) -> Since:
    """Return what is new against a good launch."""
    return Since(
        launch=good.id,
        flags=changes(good.flags, plan.values()),
        versions=changes(
            good.versions | {good.engine: good.version}, known | {plan.engine: plan.version}
        ),
        env=changes(good.env, env),
    )


def url(host: str, port: int) -> str:
    """Return where clients on this node reach an API that binds this address."""
    reachable = "127.0.0.1" if host in _ANY_ADDRESS else host
    return f"http://[{reachable}]:{port}" if ":" in reachable else f"http://{reachable}:{port}"


def _api(prepared: Prepared) -> str:
    """Return where the API is: on several nodes at the first one."""
    nodes = prepared.profile.nodes
    if not nodes:
        return url(*prepared.engine.address(prepared.values))
    host, port = prepared.engine.address(prepared.values | nodes[0].flags)
    return url(nodes[0].address if host in _ANY_ADDRESS else host, port)


def versions(ours: bool) -> dict[str, str]:
    """Return what the run stands on; what is not there is left out.

    `ours`: it runs in this interpreter; that of another engine has its own torch.
    """
    found = {"panel": __version__}
    if ours:
        found["python"] = platform.python_version()
        with suppress(PackageNotFoundError):
            found["torch"] = version("torch")
    return found | ({"driver": driver_version()} if driver_version() else {})
