"""`moepanel status`"""

from __future__ import annotations

import sys

import click

from panel.commands._options import columns, json_option, print_json
from panel.commands._screen import screen
from panel.commands._socket import Client
from panel.config.home import find_home


@click.command()
@json_option
def command(as_json: bool) -> None:
    """Show the node and its launch on one screen of text."""
    snapshot = Client(find_home().socket).snapshot()
    if as_json:
        print_json(snapshot)
        return
    unicode = (sys.stdout.encoding or "").lower().startswith("utf")
    for line in screen(snapshot, columns(80), ascii_signs=not unicode):
        click.echo(line)
