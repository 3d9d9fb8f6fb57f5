"""`moepanel shutdown`"""

from __future__ import annotations

import os
import select
import sys
import time

import click

from panel.commands import _options
from panel.commands._orphan import adopted
from panel.commands._socket import Client
from panel.config.home import find_home
from panel.domain.errors import TimedOutError
from panel.domain.wire import Accepted, Down

_TURN_S = 1.0


@click.command()
@_options.now_option
@_options.timeout_option
@_options.json_option
def command(now: bool, timeout: float | None, as_json: bool) -> None:
    """Stop the gang and the supervisor; wait until both are gone."""
    client = Client(adopted(find_home()))
    before = client.snapshot()
    pid, last = before.supervisor.pid, before.launch
    stops = last if last is not None and last.state.live else None
    gang = f"#{stops.id} {stops.request.profile}" if stops else ""
    try:
        process = os.pidfd_open(pid)
    except ProcessLookupError:
        process = None
    accepted = client.post("/v1/shutdown", Down(now=now), Accepted)
    if process is not None:
        _wait_gone(process, pid, gang, timeout)
    if as_json:
        _options.print_json(accepted)
    else:
        click.echo(f"supervisor ended; {f'{gang} stopped' if gang else 'nothing ran'}")


def _wait_gone(process: int, pid: int, gang: str, seconds: float | None) -> None:
    if gang:
        click.echo(f"stopping {gang}", err=True)
    try:
        gone = _ended(process, gang, seconds)
    finally:
        os.close(process)
    if not gone:
        raise TimedOutError(
            f"the supervisor (pid {pid}) is still stopping after {seconds:g} s",
            "moepanel status shows what it waits for",
        )


def _ended(process: int, gang: str, seconds: float | None) -> bool:
    """Wait; on a terminal the seconds are counted."""
    start, tty = time.monotonic(), bool(gang) and sys.stderr.isatty()
    while True:
        spent = time.monotonic() - start
        left = _TURN_S if seconds is None else min(seconds - spent, _TURN_S)
        gone, _, _ = select.select([process], [], [], max(left, 0.0))
        if tty:
            click.echo("\r\x1b[K" + ("" if gone else f"{spent:.0f} s"), nl=False, err=True)
        if gone or left <= 0:
            return bool(gone)
