"""Every path of the program, in one place.

Imported by the quickest commands: only the standard library's cheap parts at the top.
"""

from __future__ import annotations

import os
import stat
from collections.abc import Mapping
from pathlib import Path
from typing import NamedTuple

from panel.domain.errors import PanelError

_SOCKET_BYTES = 100
"""Longest socket path; the kernel's own limit is 107."""


class Home(NamedTuple):
    """The folders and files of one supervisor."""

    config: Path
    state: Path
    socket: Path

    @property
    def config_file(self) -> Path:
        """What an operator may set for the whole panel."""
        return self.config / "config.toml"

    @property
    def profiles(self) -> Path:
        """Folder of the operator's own profiles, `NAME.toml` each."""
        return self.config / "profiles"

    @property
    def ledger(self) -> Path:
        """The SQLite history."""
        return self.state / "ledger.sqlite"

    @property
    def launches(self) -> Path:
        """Folder of the evidence folders."""
        return self.state / "launches"

    @property
    def lock(self) -> Path:
        """Held by the supervisor as long as it lives; contains its pid."""
        return self.state / "supervisor.lock"

    @property
    def log(self) -> Path:
        """The supervisor's own log."""
        return self.state / "supervisor.log"

    def launch(self, number: int) -> Path:
        """Return the evidence folder of a launch."""
        return self.launches / f"{number:06d}"

    def prepare(self) -> None:
        """Create the folders, for this user alone; looser ones are tightened."""
        for folder in (self.config, self.profiles, self.state, self.launches, self.socket.parent):
            _make_private(folder)


def find_home(environ: Mapping[str, str] = os.environ) -> Home:
    """Return the paths: `MOEPANEL_HOME` of `environ`, else the XDG folders. Creates nothing.

    Raises `PanelError` where the socket's folder belongs to somebody else.
    """
    whole = environ.get("MOEPANEL_HOME")
    if whole:
        config = state = runtime = Path(whole).absolute()
    else:
        import platformdirs

        config = platformdirs.user_config_path("moepanel").absolute()
        state = platformdirs.user_state_path("moepanel").absolute()
        given = environ.get("XDG_RUNTIME_DIR")
        runtime = Path(given).absolute() / "moepanel" if given else state
    socket = runtime / "supervisor.sock"
    if len(os.fsencode(socket)) > _SOCKET_BYTES:
        socket = _short_folder(state) / "supervisor.sock"
    _refuse_foreign(socket.parent)
    return Home(config, state, socket)


def _short_folder(state: Path) -> Path:
    import hashlib
    import tempfile

    mark = hashlib.sha256(os.fsencode(state)).hexdigest()[:12]
    return Path(tempfile.gettempdir(), f"moepanel-{os.getuid()}-{mark}")


def _refuse_foreign(folder: Path) -> None:
    try:
        found = folder.lstat()
    except FileNotFoundError:
        return
    if not stat.S_ISDIR(found.st_mode) or found.st_uid != os.getuid():
        raise PanelError(
            f"{folder} is not a folder of this user", "remove it, or set MOEPANEL_HOME to another"
        )


def _make_private(folder: Path) -> None:
    folder.mkdir(mode=0o700, parents=True, exist_ok=True)
    _refuse_foreign(folder)
    if folder.stat().st_mode & 0o077:
        folder.chmod(0o700)
