"""`moepanel` without arguments: prepare the terminal, open the panel, say goodbye."""

from __future__ import annotations

import gc
import os
import shutil
import signal
import sys
from collections.abc import Mapping

from panel.config.home import find_home
from panel.domain.errors import UsageError
from panel.domain.snapshot import LaunchView
from panel.domain.states import LaunchState
from panel.supervisor.start import ensure_running

_FRAMES = 120
"""What a key does is painted within one of so many parts of a second; news keeps its own pace."""


def run(*, mouse: bool = True, ascii_signs: bool = False) -> int:
    """Open the panel on this user's supervisor, started if none runs; return the exit code.

    Raises `PanelError` where there is no terminal, or no supervisor can be started.
    """
    # The panel reads keys from one of them and is drawn on the other.
    if not (sys.stdin.isatty() and sys.stderr.isatty()):
        raise UsageError("the panel needs a terminal", "moepanel status tells how things stand")
    home = find_home()
    ensure_running(home)
    # Under nohup SIGHUP is ignored, and Textual would read a terminal that is gone for ever.
    signal.signal(signal.SIGHUP, signal.SIG_DFL)
    # Textual reads its rate once, when it is imported.
    os.environ.setdefault("TEXTUAL_FPS", str(_FRAMES))

    from panel.client import Client
    from panel.screens.panel import Panel

    # Looking through all that was imported for garbage, again and again, holds keys up for 0.4 s.
    gc.freeze()
    paints = paints_a_second(os.environ)
    panel = Panel(Client(home.socket), ascii_signs=ascii_signs, paints=paints)
    panel.run(mouse=mouse)
    if panel.return_code == 0:
        print(farewell(panel.desk.view.launch, called(sys.argv[0])))
    return panel.return_code or 0


def paints_a_second(environ: Mapping[str, str]) -> int:
    """Return how often news is painted at most: over SSH every byte has a price."""
    return 4 if environ.get("SSH_CONNECTION") else 10


def called(program: str) -> str:
    """Return what to type for this program, which was started as `program`."""
    name = os.path.basename(program)
    if name != "moepanel":
        return "moepanel"
    found = shutil.which(name)
    return name if found and os.path.samefile(found, program) else program


def farewell(launch: LaunchView | None, program: str = "moepanel") -> str:
    """Return what is said on the normal screen when the panel is left."""
    if launch is None or not launch.state.live:
        return f"moepanel: no engine is running; {program} comes back here."
    if launch.state is not LaunchState.SERVING and launch.state is not LaunchState.LAUNCHING:
        return f"moepanel: #{launch.id} {launch.request.profile} was ending; see {program} status."
    return (
        f"moepanel: the engine keeps running: #{launch.id} {launch.request.profile} at "
        f"{launch.url}. Come back with {program}, stop it with {program} down."
    )
