"""`moepanel serve`"""

from __future__ import annotations

import click

from panel.domain.errors import PanelError
from panel.engines import find_engine


@click.command(
    context_settings={"ignore_unknown_options": True, "help_option_names": []},
    add_help_option=False,
)
@click.argument("flags", nargs=-1, type=click.UNPROCESSED)
@click.pass_context
def command(ctx: click.Context, flags: tuple[str, ...]) -> None:
    """Run the engine alone, with its own flags."""
    missing = find_engine("builtin").missing()
    if missing:
        raise PanelError(missing)
    from panel.server.standalone import main

    ctx.exit(main(list(flags)))
