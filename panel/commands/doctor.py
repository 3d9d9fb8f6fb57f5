"""`moepanel doctor`"""

from __future__ import annotations

import sys

import click
import msgspec

from panel.commands._options import json_option, print_json
from panel.commands._socket import Client
from panel.config.home import Home, find_home
from panel.config.profiles import load_profile, read_profiles
from panel.config.settings import load_settings
from panel.domain.errors import PanelError
from panel.domain.flags import Profile
from panel.engines import find_engine
from panel.probes.check import Check


@click.command()
@json_option
def command(as_json: bool) -> None:
    """Say what this node can and cannot do, and what mends it."""
    from panel.probes.doctor import examine

    home = find_home()
    profiles, host, port = _profiles(home)
    checks = examine(
        folders=tuple(dict.fromkeys((home.config, home.state, home.socket.parent))),
        state=home.state,
        address=(host, port),
        launch=_served(home, port),
    )
    checks = (*checks, profiles)
    if as_json:
        print_json(checks)
    else:
        for check in checks:
            click.echo(f"{check.grade:<4}  {check.name:<11} {check.text}")
            if check.mend:
                click.echo(f"{'':<18}{check.mend}")
    if any(check.grade == "fail" for check in checks):
        sys.exit(1)


def _profiles(home: Home) -> tuple[Check, str, int]:
    """Return what is wrong with profiles, and where the default one's API listens."""
    default = load_settings(home.config_file).profile
    profiles, broken = read_profiles(home)
    check = Check(name="profiles", grade="pass", text=f"{len(profiles)} can be read")
    if broken:
        text = "; ".join(one.error for one in broken)
        mend = "mend the file, or remove it"
        check = Check(name="profiles", grade="warn", text=text, mend=mend)
    if default in [one.name for one in broken]:
        check = msgspec.structs.replace(check, grade="fail")
        return check, *_address(Profile(name=default, engine="builtin"))
    return check, *_address(load_profile(home, default))


def _address(profile: Profile) -> tuple[str, int]:
    """Return where a profile's API listens."""
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
