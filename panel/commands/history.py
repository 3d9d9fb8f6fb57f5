"""`moepanel history`"""

from __future__ import annotations

from contextlib import closing

import click

from panel.commands._options import columns, json_option, print_json
from panel.commands._words import clip, date
from panel.config.home import find_home
from panel.domain.wire import LaunchRecord
from panel.widgets.words import span_of


@click.command()
@click.option("--limit", default=20, type=click.IntRange(min=1), metavar="N", show_default=True)
@json_option
def command(limit: int, as_json: bool) -> None:
    """List the last launches, newest first. Works without a supervisor."""
    records = _recent(limit)
    if as_json:
        print_json(records)
        return
    if not records:
        click.echo("no launch yet; moepanel up makes one")
        return
    click.echo(
        f"{'id':>4}  {'started':<19}  {'state':<9} {'ready':>8} {'tok/s':>6}  flags, outcome"
    )
    for record in records:
        click.echo(clip(_row(record), columns(200)))


def _recent(limit: int) -> list[LaunchRecord]:
    from panel.supervisor.ledger import Ledger

    path = find_home().ledger
    if not path.exists():
        return []
    with closing(Ledger(path)) as ledger:
        return ledger.recent(limit)


def _row(record: LaunchRecord) -> str:
    ready = "" if record.ready_s is None else span_of(record.ready_s)
    speed = "" if record.tok_s is None else f"{record.tok_s:.0f}"
    asked = " ".join(f"{name}={text}" for name, text in record.request.set.items())
    words = "  ".join(part for part in (record.request.profile, asked, record.outcome) if part)
    return (
        f"{record.id:>4}  {date(record.t0_unix)}  {record.state:<9} {ready:>8} {speed:>6}  {words}"
    )
