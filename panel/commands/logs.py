"""`moepanel logs`"""

from __future__ import annotations

import sys
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from pathlib import Path

import click

from panel.commands._launches import evidence_numbers, pick
from panel.commands._loglines import as_json as json_line
from panel.commands._loglines import as_text, row_as_json, row_as_text
from panel.commands._logsources import Selection, Sources
from panel.commands._logstreams import Found, read, searched
from panel.commands._logwindow import Moment, Times, moment, times
from panel.commands._options import json_option
from panel.config.home import find_home
from panel.logs.fold import Fold
from panel.logs.query import Query
from panel.logs.records import Level
from panel.supervisor.evidence import Folder

_PROMPT_S = 0.1
"""Longest that a line waits for others on its way into a pipe."""


@click.command()
@click.argument("files", nargs=-1, type=click.Path(path_type=Path), metavar="[FILE]...")
@click.option("--rank", "ranks", type=int, multiple=True, metavar="N", help="Only this rank.")
@click.option("--source", "names", multiple=True, metavar="NAME", help="Only this source.")
@click.option("--launch", default=-1, metavar="ID", help="Which launch; -1 is the last.")
@click.option("--grep", "pattern", default="", metavar="RE", help="Lines that match.")
@click.option("--ignore-case", "-i", is_flag=True, help="Match without regard to case.")
@click.option("--invert", is_flag=True, help="Lines that do not match.")
@click.option(
    "--level",
    type=click.Choice([level.name.lower() for level in Level]),
    default="debug",
    help="Least severe line.",
)
@click.option(
    "--since", callback=moment, metavar="T", help="From T: seconds since launch, or crash-10."
)
@click.option("--until", callback=moment, metavar="T", help="Up to T, as crash+2.")
@click.option(
    "--context",
    "-C",
    "around",
    type=click.IntRange(min=0),
    default=0,
    metavar="N",
    help="With N lines before and behind each.",
)
@click.option("--fold", is_flag=True, help="Equal lines of several ranks as one.")
@click.option("--follow", "-f", is_flag=True, help="Until the launch has ended.")
@json_option
def command(
    files: tuple[Path, ...],
    ranks: tuple[int, ...],
    names: tuple[str, ...],
    launch: int,
    pattern: str,
    ignore_case: bool,
    invert: bool,
    level: str,
    since: Moment | None,
    until: Moment | None,
    around: int,
    fold: bool,
    follow: bool,
    as_json: bool,
) -> None:
    """Print the logs of a launch in the order in which the lines arrived.

    Reads the evidence folder, also without a supervisor, or FILEs of any engine, also gzip. Secrets
    are masked.
    """
    folder = None if files else _folder(launch)
    sources = Sources(folder, files, Selection(ranks, names))
    paths = sources.find()
    if not paths and not follow:
        raise sources.none_found()
    query = Query(
        pattern=pattern,
        ignore_case=ignore_case,
        invert=invert and bool(pattern),
        level=Level[level.upper()],
        ranks=sources.ranks_inside(paths),
    )
    query.compile()
    window = times(since, until, folder)
    if follow or (query == Query() and window == Times()):
        batches = read(sources, query, window, follow)
    else:
        batches = iter((searched(paths, query, window, around),))
    if fold:
        show = row_as_json if as_json else row_as_text
        _print(_folded(batches, sources.world(paths), show))
    else:
        line = json_line if as_json else as_text([found.source for found in paths])
        _print((line(*found) for found in batch) for batch in batches)


def _folder(launch: int) -> Folder:
    home = find_home()
    return Folder(home.launch(pick(launch, evidence_numbers(home.launches))))


def _print(batches: Iterable[Iterable[str]]) -> None:
    # click.echo would flush each line, and sys.stdout refuse what its locale does not have.
    stdout = sys.stdout.buffer
    shown = time.monotonic()
    for batch in batches:
        for line in batch:
            stdout.write(line.encode())
            if time.monotonic() - shown > _PROMPT_S:
                stdout.flush()
                shown = time.monotonic()
        stdout.flush()


def _folded(
    batches: Iterable[Iterable[Found]], world: Sequence[int], show: Callable[..., str]
) -> Iterator[Iterator[str]]:
    folding = Fold(world)
    for batch in batches:
        yield (show(row, world) for record, _ in batch for row in folding.add((record,)))
    yield (show(row, world) for row in folding.pending)
