"""`moepanel profile`"""

from __future__ import annotations

import click

from panel.commands import _options
from panel.config.home import find_home
from panel.domain.errors import PanelError, UsageError


@click.group()
def command() -> None:
    """Launch recipes: list them, make one of a command line, and back."""


@command.command("list")
@_options.json_option
def list_profiles(as_json: bool) -> None:
    """Show every recipe, the shipped ones included; 1 where the file of one is wrong."""
    from panel.config.profiles import read_profiles

    profiles, broken = read_profiles(find_home())
    if as_json:
        _options.print_json(profiles)
    else:
        for profile in profiles:
            click.echo(f"{profile.name:<28} {profile.engine:<8} {profile.note}")
    if broken:
        names = ", ".join(one.name for one in broken)
        raise PanelError(f"left out: {names}", "; ".join(one.error for one in broken))


@command.command("import", context_settings={"ignore_unknown_options": True})
@click.option("--name", default="imported", show_default=True, help="Name of the new recipe.")
@click.option("--engine-version", default="", help="Version of the engine, if not the newest.")
@click.option("--force", is_flag=True, help="Also where there is one of that name.")
@click.argument("words", nargs=-1, required=True, type=click.UNPROCESSED)
def import_profile(name: str, engine_version: str, force: bool, words: tuple[str, ...]) -> None:
    """Make a recipe of the command line after `--`, and print its file.

    With `--force` a file of that name is changed: what it says beyond the command line is kept
    where it fits. One of a shipped recipe's name hides that recipe.
    """
    from panel.config.profiles import is_shipped, save_profile
    from panel.engines.shell import read_command

    profile = read_command(words, name, engine_version)
    home = find_home()
    own = home.profiles / f"{name}.toml"
    hides = is_shipped(name) and not own.exists()
    if not force and hides:
        raise UsageError(
            f"{name} is a recipe that moepanel ships; the new one would hide it",
            "--name gives it another name, --force hides the shipped one",
        )
    if not force and own.exists():
        raise UsageError(
            f"{own} is there already", "--name gives it another name, --force changes that file"
        )
    home.prepare()
    if hides:
        click.echo(f"hides the shipped recipe {name}; remove the file to have it back", err=True)
    click.echo(save_profile(home, profile))


@command.command("export")
@click.argument("name")
def export_profile(name: str) -> None:
    """Print the command line of a recipe; secrets are masked."""
    from panel.config.profiles import load_profile
    from panel.engines.shell import write_command

    click.echo(write_command(load_profile(find_home(), name)))
