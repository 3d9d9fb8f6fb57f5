"""`moepanel triage`"""

from __future__ import annotations

from pathlib import Path

import click

from panel.commands._hanging import with_suspicion
from panel.commands._launches import evidence_numbers, pick
from panel.commands._options import json_option, print_json
from panel.commands._verdict import verdict_lines
from panel.config.home import Home, find_home
from panel.domain.errors import NotFoundError, UsageError
from panel.domain.nodes import with_nodes
from panel.domain.verdict import Verdict
from panel.supervisor.evidence import Folder, LaunchSpec, read_json
from panel.widgets.advice_words import RELAUNCH

_FAILED = ("crashed", "hung", "refused", "host_down")


@click.command()
@click.argument("paths", nargs=-1, metavar="[PATH]...", type=click.Path(path_type=Path))
@click.option("--launch", type=int, metavar="ID", help="Which launch; -1 is the last.")
@click.option("--check", is_flag=True, help="Exit with 1 where the launch failed.")
@json_option
@click.pass_context
def command(
    ctx: click.Context, paths: tuple[Path, ...], launch: int | None, check: bool, as_json: bool
) -> None:
    """Say what failed, on which rank, why, and what to do.

    Looks at a launch (the last one by default), at evidence folders, or at raw logs of SGLang,
    vLLM, torchrun programs and this engine from any machine. Works without a supervisor.
    """
    if paths and launch is not None:
        raise UsageError("paths and --launch exclude each other", "give one of them")
    verdicts = _verdicts(paths, -1 if launch is None else launch)
    if as_json:
        print_json(verdicts if len(verdicts) > 1 else verdicts[0])
    else:
        for index, verdict in enumerate(verdicts):
            if len(verdicts) > 1:
                click.echo(f"{'' if index == 0 else chr(10)}{paths[index]}")
            for line in verdict_lines(verdict, "" if paths else RELAUNCH):
                click.echo(line)
    if check and any(verdict.status in _FAILED for verdict in verdicts):
        ctx.exit(1)


def _verdicts(paths: tuple[Path, ...], launch: int) -> list[Verdict]:
    # The signatures are read for this: no other command should wait for them.
    from panel.triage.folder import triage_files

    home = find_home()
    if not paths:
        return [_own(home, pick(launch, evidence_numbers(home.launches)))]
    for path in paths:
        if not path.exists():
            name = str(path).removeprefix("#")
            meant = f"moepanel triage --launch {name}" if name.isdecimal() else ""
            raise NotFoundError(f"{path} does not exist", meant)
    folders = [path.is_dir() for path in paths]
    if all(folders):
        return [_of_folder(home, path) for path in paths]
    if any(folders):
        raise UsageError(
            "folders and files are mixed", "give evidence folders, or logs of one launch"
        )
    return [triage_files(paths)]


def _of_folder(home: Home, path: Path) -> Verdict:
    """Return the verdict on evidence from anywhere; this node knows more of its own launches."""
    from panel.triage.folder import triage_folder

    place = path.resolve()
    if place.name.isdecimal() and place == home.launch(int(place.name)).resolve():
        return _own(home, int(place.name))
    return _placed(path, triage_folder(path))


def _own(home: Home, number: int) -> Verdict:
    """Return the verdict on a launch of this node."""
    from panel.triage.folder import triage_folder

    folder = home.launch(number)
    return with_suspicion(_placed(folder, triage_folder(folder, live=True)), home, number)


def _placed(folder: Path, verdict: Verdict) -> Verdict:
    """Return the verdict with the nodes of the ranks it blames, where there are several."""
    spec = read_json(Folder(folder).launch, LaunchSpec)
    return verdict if spec is None else with_nodes(verdict, spec.world_size, spec.plan.nodes)
