"""`moepanel down`"""

from __future__ import annotations

import click
import msgspec

from panel.commands import _options
from panel.commands._orphan import adopted
from panel.commands._socket import Client
from panel.commands._wait import ended, wait_for
from panel.config.home import find_home
from panel.domain.errors import PanelError
from panel.domain.states import LaunchState
from panel.domain.wire import Accepted, Down


class Ended(msgspec.Struct, frozen=True, kw_only=True):
    """The launch that was stopped, None where nothing ran; its state, None without waiting."""

    launch: int | None
    state: LaunchState | None = None
    held: tuple[str, ...] = ()
    """What it still holds of the GPUs."""


@click.command()
@_options.now_option
@click.option("--wait/--no-wait", default=True, help="Until nothing of the gang is left.")
@_options.timeout_option
@_options.json_option
def command(now: bool, wait: bool, timeout: float | None, as_json: bool) -> None:
    """Stop the gang."""
    client = Client(adopted(find_home()))
    number = client.post("/v1/down", Down(now=now), Accepted).launch
    state: LaunchState | None = None
    held: tuple[str, ...] = ()
    if number is not None and wait:
        launch = wait_for(client, number, ended, timeout)
        state, held = launch.state, launch.held
    if as_json:
        _options.print_json(Ended(launch=number, state=state, held=held))
    elif number is None:
        click.echo("nothing runs")
    else:
        click.echo(f"#{number} {state or 'stopping'}")
    if held:
        raise PanelError("; ".join(held), "end that process or its container by hand")
