"""`moepanel`: opens the panel, or runs one command. Imports nothing heavy."""

from __future__ import annotations

import importlib
import sys
from typing import Any

import click

from panel import __version__
from panel.domain.errors import PanelError

COMMANDS = (
    "up",
    "relaunch",
    "down",
    "shutdown",
    "status",
    "plan",
    "profile",
    "logs",
    "triage",
    "stacks",
    "history",
    "diff",
    "doctor",
    "serve",
)


class _Commands(click.Group):
    """Finds a command in the module of its name, and tells every `PanelError` alike."""

    def list_commands(self, ctx: click.Context) -> list[str]:
        return list(COMMANDS)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        if cmd_name not in COMMANDS:
            return None
        module = importlib.import_module(f"panel.commands.{cmd_name}")
        command: click.Command = module.command
        return command

    def invoke(self, ctx: click.Context) -> Any:
        try:
            return super().invoke(ctx)
        except PanelError as error:
            click.echo(f"moepanel: {error.message}", err=True)
            if error.hint:
                click.echo(f"  {error.hint}", err=True)
            ctx.exit(error.exit_code)
        except KeyboardInterrupt:
            sys.exit(130)


@click.group(cls=_Commands, invoke_without_command=True)
@click.version_option(__version__, prog_name="moepanel", message="%(prog)s %(version)s")
@click.option("--no-mouse", is_flag=True, help="Leave the mouse to the terminal.")
@click.option("--ascii", "ascii_signs", is_flag=True, help="Draw with ASCII signs only.")
@click.pass_context
def main(ctx: click.Context, no_mouse: bool, ascii_signs: bool) -> None:
    """Launch, watch, triage and relaunch the engine of this node.

    Without a command the panel opens. Exit codes: 0 done, 1 the thing asked about failed, 2 wrong
    usage, 3 no supervisor or no launch, 4 timed out.
    """
    if ctx.invoked_subcommand is None:
        from panel.app import run

        ctx.exit(run(mouse=not no_mouse, ascii_signs=ascii_signs))


if __name__ == "__main__":
    main(prog_name="moepanel")
