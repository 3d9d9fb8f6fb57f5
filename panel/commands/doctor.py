"""`moepanel doctor`"""

from __future__ import annotations

import sys

import click

from panel.commands._options import json_option, print_json
from panel.commands._socket import Client
from panel.config.home import Home, find_home
from panel.config.profiles import load_profile
from panel.config.settings import load_settings
from panel.domain.errors import PanelError
from panel.engines import find_engine


@click.command()
@json_option
def command(as_json: bool) -> None:
    """Say what this node can and cannot do, and what mends it."""
    from panel.probes.doctor import examine

    home = find_home()
    host, port = _address(home)
    checks = examine(
        folders=tuple(dict.fromkeys((home.config, home.state, home.socket.parent))),
        state=home.state,
        address=(host, port),
        launch=_served(home, port),
    )
    if as_json:
        print_json(checks)
    else:
        for check in checks:
            click.echo(f"{check.grade:<4}  {check.name:<11} {check.text}")
            if check.mend:
                click.echo(f"{'':<18}{check.mend}")
    if any(check.grade == "fail" for check in checks):
        sys.exit(1)


def _address(home: Home) -> tuple[str, int]:
    """Return where the default profile's API listens."""
    profile = load_profile(home, load_settings(home.config_file).profile)
    engine = find_engine(profile.engine)
    engine.check(profile.flags)
    return engine.address(profile.flags)


def _served(home: Home, port: int) -> int | None:
    try:
        launch = Client(home.socket).snapshot().launch
    except PanelError:
        return None
    if launch is not None and launch.state.live and launch.url.endswith(f":{port}"):
        return launch.id
    return None
