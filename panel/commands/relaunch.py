"""`moepanel relaunch`"""

from __future__ import annotations

import click

from panel.commands import _options
from panel.commands._outcome import report
from panel.commands._socket import Client
from panel.config.home import Home, find_home
from panel.config.settings import load_settings
from panel.domain.wire import Accepted, Relaunch


@click.command()
@_options.set_option
@click.option("--unset", multiple=True, metavar="FLAG", help="Do not pass this flag.")
@click.option("--reset", is_flag=True, help="Start from the profile, not the last request.")
@_options.profile_option
@_options.wait_option
@_options.timeout_option
@_options.json_option
def command(
    settings: dict[str, str],
    unset: tuple[str, ...],
    reset: bool,
    profile: str | None,
    wait: bool,
    timeout: float | None,
    as_json: bool,
) -> None:
    """Stop what runs and launch again with other flags. Starts the supervisor.

    The base is the request of the last launch, also of one that stopped or failed. Nothing is
    stopped unless the plan is sound.
    """
    from panel.supervisor.start import ensure_running

    home = find_home()
    client = Client(ensure_running(home))
    click.echo(_base(client, home, settings, unset, reset, profile), err=True)
    flags = tuple(flag.removeprefix("--") for flag in unset)
    request = Relaunch(set=settings, unset=flags, reset=reset, profile=profile)
    accepted = client.post("/v1/relaunch", request, Accepted)
    report(client, accepted, wait=wait, seconds=timeout, as_json=as_json)


def _base(
    client: Client,
    home: Home,
    settings: dict[str, str],
    unset: tuple[str, ...],
    reset: bool,
    profile: str | None,
) -> str:
    """Return what the launch starts from, and what of it stays."""
    last = client.snapshot().launch
    if last is None:
        name = profile or load_settings(home.config_file).profile
        return f"nothing was launched before: from the profile {name}"
    if reset or profile not in (None, last.request.profile):
        return f"from the profile {profile or last.request.profile}"
    gone = {name.removeprefix("--") for name in (*settings, *unset)}
    stay = [f"{name}={text}" for name, text in last.request.set.items() if name not in gone]
    return f"from the request of #{last.id}{': ' if stay else ''}{' '.join(stay)}"
