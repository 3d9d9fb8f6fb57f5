"""Waiting for a launch to get somewhere, with progress shown."""

from __future__ import annotations

from collections.abc import Callable, Iterator

import click

from panel.commands._progress import Progress
from panel.commands._socket import Client
from panel.domain.errors import PanelError, TimedOutError
from panel.domain.snapshot import LaunchView
from panel.domain.states import LaunchState


def serving_or_ended(launch: LaunchView) -> bool:
    """Whether an `up` is decided; a failure is, once its verdict is final."""
    if launch.state.failed:
        return launch.verdict is not None and launch.verdict.final
    return launch.state in (LaunchState.SERVING, LaunchState.STOPPED)


def ended(launch: LaunchView) -> bool:
    """Whether nothing of the gang is left."""
    return not launch.state.live


def wait_for(
    client: Client, number: int, reached: Callable[[LaunchView], bool], seconds: float | None
) -> LaunchView:
    """Return launch `number` as soon as `reached` holds.

    Raises `TimedOutError`, and `PanelError` where another launch took its place.
    """
    progress = Progress()
    try:
        views = _views(client, number, seconds, progress)
        return next(launch for launch in views if reached(launch))
    except TimedOutError:
        raise TimedOutError(
            f"launch #{number} stands at {progress.stand or 'its beginning'} after {seconds:g} s",
            "it goes on: moepanel status",
        ) from None
    except KeyboardInterrupt:
        progress.close()
        click.echo(
            f"moepanel: no longer waiting, launch #{number} goes on\n"
            "  moepanel status shows it, moepanel down stops it",
            err=True,
        )
        raise
    finally:
        progress.close()


def _views(
    client: Client, number: int, seconds: float | None, progress: Progress
) -> Iterator[LaunchView]:
    for snapshot in client.snapshots(seconds):
        launch = snapshot.launch
        if launch is None:
            continue
        if launch.id > number:
            raise PanelError(f"launch #{number} was replaced by #{launch.id}")
        progress.show(launch)
        if launch.id == number:
            yield launch
