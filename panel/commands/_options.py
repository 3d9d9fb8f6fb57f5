"""Options that several commands share."""

from __future__ import annotations

import shutil
import sys
from typing import Any

import click
import msgspec

json_option = click.option("--json", "as_json", is_flag=True, help="Print JSON instead of text.")
profile_option = click.option("--profile", metavar="NAME", help="Launch recipe.")
wait_option = click.option("--wait", is_flag=True, help="Until the engine serves, or failed.")
timeout_option = click.option(
    "--timeout", type=click.FloatRange(min=0), metavar="SECONDS", help="Longest wait."
)
now_option = click.option("--now", is_flag=True, help="KILL at once instead of TERM and grace.")


def _settings(
    _ctx: click.Context, _param: click.Parameter, words: tuple[str, ...]
) -> dict[str, str]:
    settings = {}
    for word in words:
        flag, equals, value = word.partition("=")
        flag = flag.strip().removeprefix("--")
        if not equals or not flag:
            raise click.BadParameter(f"{word!r} is not FLAG=VALUE; a switch is FLAG=true")
        settings[flag] = value.strip()
    return settings


set_option = click.option(
    "--set",
    "settings",
    multiple=True,
    metavar="FLAG=VALUE",
    callback=_settings,
    help="A flag of the engine, or ep=, spec=, graphs=. Can be repeated.",
)


def columns(otherwise: int) -> int:
    """Return the width of the terminal, or another one where standard output is none."""
    return shutil.get_terminal_size().columns if sys.stdout.isatty() else otherwise


def print_json(value: Any) -> None:
    """Print a value of `panel.domain`, or a list of them, on one line."""
    click.echo(msgspec.json.encode(value))
