"""`moepanel stacks`"""

from __future__ import annotations

from pathlib import Path

import click
import msgspec

from panel.commands._options import json_option, print_json
from panel.commands._socket import Client
from panel.config.home import find_home
from panel.domain.errors import NotFoundError, PanelError
from panel.domain.stacks import Stacks, TakeStacks


@click.command()
@click.option("--native", is_flag=True, help="Frames of C and C++ too; pauses each rank longer.")
@click.option("--threads", is_flag=True, help="Every thread, not only the main one.")
@click.option(
    "--save",
    type=click.Path(dir_okay=False, path_type=Path),
    metavar="FILE",
    help="Write the answer there too, as JSON.",
)
@json_option
def command(native: bool, threads: bool, save: Path | None, as_json: bool) -> None:
    """Show where every rank stands now, grouped by equal stacks, the odd one first."""
    from panel.probes.stacks.text import lines

    client = Client(find_home().socket)
    launch = client.snapshot().launch
    if launch is None or not launch.state.live:
        raise NotFoundError("no launch runs", "stacks of an earlier one are in its evidence folder")
    target = f"/v1/launches/{launch.id}/stacks"
    found = client.post(target, TakeStacks(native=native), Stacks)
    if save is not None:
        try:
            save.write_bytes(msgspec.json.format(msgspec.json.encode(found), indent=1) + b"\n")
        except OSError as error:
            raise PanelError(f"{save}: {error.strerror}") from None
    if as_json:
        print_json(found)
    else:
        for line in lines(found, threads):
            click.echo(line)
        click.echo(f"saved in the evidence of launch #{launch.id}: {found.file}", err=True)
    if all(process.trouble for process in found.processes):
        raise PanelError("no stack could be taken", found.processes[0].trouble)
