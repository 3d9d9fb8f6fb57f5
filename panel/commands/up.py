"""`moepanel up`"""

from __future__ import annotations

import click

from panel.commands import _options
from panel.commands._outcome import report
from panel.commands._socket import Client
from panel.config.home import find_home
from panel.domain.wire import Accepted, Up


@click.command()
@_options.profile_option
@_options.set_option
@_options.wait_option
@_options.timeout_option
@_options.json_option
def command(
    profile: str | None,
    settings: dict[str, str],
    wait: bool,
    timeout: float | None,
    as_json: bool,
) -> None:
    """Launch the engine. Starts the supervisor; refused while a gang runs."""
    from panel.supervisor.start import ensure_running

    client = Client(ensure_running(find_home()))
    accepted = client.post("/v1/up", Up(profile=profile, set=settings), Accepted)
    report(client, accepted, wait=wait, seconds=timeout, as_json=as_json)
