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
from panel.widgets.words import size

_SIGNS = {"note": "-", "warning": "!", "refusal": "X"}


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


def _lines(plan: Plan) -> Iterator[str]:
    yield " ".join((f"{plan.request.profile}/{plan.engine}", plan.version, *plan.chips))
    for flag in plan.flags:
        yield f"  {flag.name} = {flag.value}  ({flag.origin})"
    if plan.memory:
        yield "memory of each rank, predicted"
    for part in plan.memory:
        yield f"  {part.category:<20} {size(part.predicted):>8}"
    for change in plan.changes:
        yield f"changed  {change.name}: {change.before or 'not set'} → {change.after or 'not set'}"
    for problem in plan.problems:
        yield f"{_SIGNS[problem.severity]} {problem.text}"
        for name, text in problem.remedy.items():
            yield f"    --set {name}={text}"
