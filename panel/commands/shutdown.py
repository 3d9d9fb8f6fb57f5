"""`moepanel shutdown`"""

from __future__ import annotations

import os
import select

import click

from panel.commands import _options
from panel.commands._orphan import adopted
from panel.commands._socket import Client
from panel.config.home import find_home
from panel.domain.errors import TimedOutError
from panel.domain.wire import Accepted, Down


@click.command()
@_options.now_option
@_options.timeout_option
@_options.json_option
def command(now: bool, timeout: float | None, as_json: bool) -> None:
    """Stop the gang and the supervisor; wait until both are gone."""
    client = Client(adopted(find_home()))
    pid = client.snapshot().supervisor.pid
    try:
        process = os.pidfd_open(pid)
    except ProcessLookupError:
        process = None
    accepted = client.post("/v1/shutdown", Down(now=now), Accepted)
    if process is not None:
        _wait_gone(process, pid, timeout)
    if as_json:
        _options.print_json(accepted)
    else:
        click.echo("supervisor ended; nothing runs")


def _wait_gone(process: int, pid: int, seconds: float | None) -> None:
    try:
        gone, _, _ = select.select([process], [], [], seconds)
    finally:
        os.close(process)
    if not gone:
        raise TimedOutError(
            f"the supervisor (pid {pid}) is still stopping after {seconds:g} s",
            "moepanel status shows what it waits for",
        )
