"""`moepanel diff`"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import closing

import click
import msgspec

from panel.commands._options import json_option, print_json
from panel.config.home import find_home
from panel.domain.errors import NotFoundError
from panel.domain.plan import Change, changes
from panel.domain.wire import LaunchRecord
from panel.widgets.words import span_of


class Difference(msgspec.Struct, frozen=True, kw_only=True):
    """Two launches and what differs between them."""

    before: LaunchRecord
    after: LaunchRecord
    changes: tuple[Change, ...]
    """Of flags."""
    versions: tuple[Change, ...]
    """Of what the runs stood on."""


@click.command(context_settings={"ignore_unknown_options": True})
@click.argument("before", type=int, metavar="A")
@click.argument("after", type=int, metavar="B")
@json_option
def command(before: int, after: int, as_json: bool) -> None:
    """Compare two launches; -1 is the last.

    Shows flags, versions, outcome and speed. Works without a supervisor.
    """
    difference = _compare(before, after)
    if as_json:
        print_json(difference)
        return
    rows = list(_rows(difference))
    names, lefts = (max(len(row[column]) for row in rows) for column in (0, 1))
    for name, left, right in rows:
        click.echo(f"{name:<{names}}  {left:<{lefts}}  {right}".rstrip())
    for record in (difference.before, difference.after):
        if record.outcome:
            click.echo(f"#{record.id}: {record.outcome}")


def _compare(before: int, after: int) -> Difference:
    from panel.supervisor.ledger import Ledger

    path = find_home().ledger
    if not path.exists():
        raise NotFoundError("no launch yet", "moepanel up makes one")
    with closing(Ledger(path)) as ledger:
        a, b = ledger.get(before), ledger.get(after)
    return Difference(
        before=a,
        after=b,
        changes=changes(a.flags, b.flags),
        versions=changes(
            {a.engine: a.version} | a.versions,
            {b.engine: b.version} | b.versions,
        ),
    )


def _rows(difference: Difference) -> Iterator[tuple[str, str, str]]:
    a, b = difference.before, difference.after
    yield "", f"#{a.id}", f"#{b.id}"
    yield "profile", a.request.profile, b.request.profile
    for change in (*difference.changes, *difference.versions):
        yield change.name, change.before or "-", change.after or "-"
    yield "state", a.state, b.state
    yield "ready", _seconds(a.ready_s), _seconds(b.ready_s)
    for phase in dict.fromkeys((*a.phases, *b.phases)):
        yield f"  {phase}", _seconds(a.phases.get(phase)), _seconds(b.phases.get(phase))
    yield "tok/s", _speed(a.tok_s), _speed(b.tok_s)


def _seconds(seconds: float | None) -> str:
    return "-" if seconds is None else span_of(seconds)


def _speed(speed: float | None) -> str:
    return "-" if speed is None else f"{speed:.1f}"
