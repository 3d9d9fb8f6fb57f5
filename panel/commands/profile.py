"""`moepanel profile`"""

from __future__ import annotations

import click

from panel.commands import _options
from panel.config.home import find_home


@click.group()
def command() -> None:
    """Launch recipes: list them, make one of a command line, and back."""


@command.command("list")
@_options.json_option
def list_profiles(as_json: bool) -> None:
    """Show every recipe, the shipped ones included."""
    from panel.config.profiles import profile_files, read_profile

    profiles = [read_profile(path) for path in profile_files(find_home()).values()]
    if as_json:
        _options.print_json(profiles)
        return
    for profile in profiles:
        click.echo(f"{profile.name:<28} {profile.engine:<8} {profile.note}")


@command.command("import", context_settings={"ignore_unknown_options": True})
@click.option("--name", default="imported", show_default=True, help="Name of the new recipe.")
@click.option("--engine-version", default="", help="Version of the engine, if not the newest.")
@click.argument("words", nargs=-1, required=True, type=click.UNPROCESSED)
def import_profile(name: str, engine_version: str, words: tuple[str, ...]) -> None:
    """Make a recipe of the command line after `--`, and print its file.

    A file of that name is changed: what it says beyond the command line is kept where it fits.
    """
    from panel.config.profiles import save_profile
    from panel.engines.shell import read_command

    profile = read_command(words, name, engine_version)
    home = find_home()
    home.prepare()
    click.echo(save_profile(home, profile))


@command.command("export")
@click.argument("name")
def export_profile(name: str) -> None:
    """Print the command line of a recipe; secrets are masked."""
    from panel.config.profiles import load_profile
    from panel.engines.shell import write_command

    click.echo(write_command(load_profile(find_home(), name)))
