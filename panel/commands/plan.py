"""`moepanel plan`"""

from __future__ import annotations

import sys
from collections.abc import Iterator
from contextlib import closing

import click

from panel.commands import _options
from panel.commands._socket import Client
from panel.config.home import Home, find_home
from panel.domain.errors import NotFoundError
from panel.domain.plan import Plan
from panel.domain.wire import Up
from panel.widgets.memory_bar import letters, memory_bar
from panel.widgets.words import size

_SIGNS = {"note": "-", "warning": "!", "refusal": "X"}
_BAR = 72


@click.command()
@_options.profile_option
@_options.set_option
@_options.json_option
def command(profile: str | None, settings: dict[str, str], as_json: bool) -> None:
    """Say what a launch would be; launches nothing.

    Works without a supervisor, too.
    """
    plan = _plan(find_home(), Up(profile=profile, set=settings))
    if as_json:
        _options.print_json(plan)
    else:
        for line in _lines(plan):
            click.echo(line)
    if plan.refused:
        sys.exit(1)


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
    for flag in plan.flags:
        yield f"  {flag.name} = {flag.value}  ({flag.origin})"
    for each in plan.overrides:
        asked = each.requested or "not set"
        yield f"engine   {each.name}: {asked} → {each.resolved}  ({each.reason})"
    yield from _memory(plan)
    for path in plan.capabilities:
        unlock = f"; unlocked by: {path.unlock}" if path.unlock else ""
        yield f"path     {path.path}: {path.state}; {path.why}{unlock}"
    for change in plan.changes:
        yield f"changed  {change.name}: {change.before or 'not set'} → {change.after or 'not set'}"
    for problem in plan.problems:
        yield f"{_SIGNS[problem.severity]} {problem.text}"
        for name, text in problem.remedy.items():
            yield f"    --set {name}={text}"
