"""`moepanel plan`"""

from __future__ import annotations

import sys
from collections import Counter
from collections.abc import Iterator
from contextlib import closing

import click
import msgspec

from panel.commands import _options
from panel.commands._launches import evidence_numbers, pick
from panel.commands._socket import Client
from panel.config.home import Home, find_home
from panel.domain.errors import NotFoundError, UsageError
from panel.domain.plan import Plan
from panel.domain.run import Run, reduce_all
from panel.domain.wire import Up
from panel.planning.measured import measured
from panel.supervisor.evidence import EventReader, Folder, LaunchSpec, read_json
from panel.widgets.memory_bar import letters, memory_bar
from panel.widgets.words import size, taken

_SIGNS = {"note": "-", "warning": "!", "refusal": "X"}
_BAR = 72


@click.command()
@_options.profile_option
@_options.set_option
@click.option("--launch", type=int, metavar="ID", help="The plan of a launch; -1 is the last.")
@_options.json_option
def command(
    profile: str | None, settings: dict[str, str], launch: int | None, as_json: bool
) -> None:
    """Say what a launch would be; launches nothing.

    The base is the profile, as of `up`; `relaunch` goes on from the last request. With --launch the
    plan that a launch had, and beside it the memory that it took. Works without a supervisor, too.
    """
    if launch is not None:
        if profile is not None or settings:
            raise UsageError("--launch shows a plan that was made", "give it alone")
        plan = _plan_of(find_home(), launch)
    else:
        plan = _plan(find_home(), Up(profile=profile, set=settings))
    if as_json:
        _options.print_json(plan)
    else:
        if launch is None:
            click.echo(
                f"from the profile {plan.request.profile}; relaunch goes on from the last request"
            )
        for line in _lines(plan):
            click.echo(line)
        if launch is None:
            click.echo(_verdict(plan))
    if plan.refused and launch is None:
        sys.exit(1)


def _plan_of(home: Home, launch: int) -> Plan:
    """Return the plan of a launch with what its events tell of its memory."""
    folder = Folder(home.launch(pick(launch, evidence_numbers(home.launches))))
    spec = read_json(folder.launch, LaunchSpec)
    if spec is None:
        raise NotFoundError(f"{folder.launch} is missing or damaged", "moepanel history")
    plan, run = spec.plan, reduce_all(Run(), EventReader(folder).read())
    return msgspec.structs.replace(plan, measured=measured(plan.memory, plan.fit, run.memory))


def _plan(home: Home, body: Up) -> Plan:
    try:
        return Client(home.socket).post("/v1/plan?base=profile", body, Plan)
    except NotFoundError:
        return _plan_alone(home, body)


def _plan_alone(home: Home, body: Up) -> Plan:
    """Return the plan that a supervisor would make, from the same files."""
    from panel.config.settings import load_settings
    from panel.engines import find_engine
    from panel.supervisor.ledger import Ledger
    from panel.supervisor.planner import Basis, Planner

    home.prepare()
    with closing(Ledger(home.ledger)) as ledger:
        past = ledger.recent(1)
    basis = Basis(past[0].request, past[0].flags, None) if past else None
    planner = Planner(home, find_engine, load_settings(home.config_file).profile)
    return planner.up(body, basis).plan


def _verdict(plan: Plan) -> str:
    """Return in a line whether it can be launched."""
    counts = Counter(problem.severity for problem in plan.problems)
    if plan.refused:
        return f"refused: it cannot work for what is marked {_SIGNS['refusal']}"
    warnings = counts["warning"]
    told = f", with {warnings} warning{'s' * (warnings > 1)}" if warnings else ""
    return f"ok: it can be launched{told}"


def _memory(plan: Plan) -> Iterator[str]:
    if not plan.memory:
        return
    reckoned = ", reckoned from the config alone" if plan.fit and plan.fit.estimated else ""
    yield f"memory of each rank, predicted{reckoned}"
    for sign, part in zip(letters(plan.memory), plan.memory, strict=True):
        yield f"  {sign} {part.category:<20} {size(part.predicted):>8}  {part.note}".rstrip()
    if plan.fit:
        yield f"    {'left':<20} {size(max(plan.fit.left, 0)):>8}  of {size(plan.fit.total)}"
        yield f"  [{memory_bar(plan.memory, plan.fit.total, _BAR)}]"


def _lines(plan: Plan) -> Iterator[str]:
    yield " ".join((f"{plan.request.profile}/{plan.engine}", plan.version, *plan.chips))
    if plan.nodes:
        share = plan.world_size // len(plan.nodes)
        yield f"nodes    {', '.join(plan.nodes)}: {share} ranks each"
    for flag in plan.flags:
        yield f"  {flag.name} = {flag.value}  ({flag.origin})"
    for each in plan.overrides:
        asked = each.requested or "not set"
        yield f"engine   {each.name}: {asked} → {each.resolved}  ({each.reason})"
    yield from _memory(plan)
    if plan.measured:
        yield f"measured {', '.join(taken(plan.measured))}"
    for path in plan.capabilities:
        unlock = f"; unlocked by: {path.unlock}" if path.unlock else ""
        yield f"path     {path.path}: {path.state}; {path.why}{unlock}"
    for change in plan.changes:
        yield f"changed  {change.name}: {change.before or 'not set'} → {change.after or 'not set'}"
    for problem in plan.problems:
        yield f"{_SIGNS[problem.severity]} {problem.text}"
        for name, text in problem.remedy.items():
            yield f"    --set {name}={text}"
