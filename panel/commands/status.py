"""`moepanel status`"""

from __future__ import annotations

import sys

import click

from panel.commands._options import columns, json_option, print_json
from panel.commands._orphan import orphan
from panel.commands._screen import screen
from panel.commands._socket import Client
from panel.config.home import find_home
from panel.domain.errors import NotFoundError


@click.command()
@json_option
def command(as_json: bool) -> None:
    """Show the node and its launch on one screen of text."""
    home = find_home()
    try:
        snapshot = Client(home.socket).snapshot()
    except NotFoundError:
        number = orphan(home)
        if number is None:
            raise
        raise NotFoundError(
            f"no supervisor runs, but launch #{number} goes on",
            "moepanel adopts it, moepanel down stops it",
        ) from None
    if as_json:
        print_json(snapshot)
        return
    unicode = (sys.stdout.encoding or "").lower().startswith("utf")
    for line in screen(snapshot, columns(80), ascii_signs=not unicode):
        click.echo(line)
