"""All profiles as snapshots show them, read again when a file changed."""

from __future__ import annotations

import logging
from pathlib import Path

import msgspec

from panel.config.home import Home
from panel.config.profiles import profile_files, read_profile
from panel.domain.errors import UsageError
from panel.domain.flags import Profile
from panel.domain.redact import redact_values

log = logging.getLogger(__name__)


class ProfileCache:
    """The profiles of a home. One that is wrong is left out, and said so in the log."""

    def __init__(self, home: Home) -> None:
        self._home = home
        self._seen: dict[Path, float] = {}
        self.profiles: tuple[Profile, ...] = ()
        self.refresh()

    def refresh(self) -> None:
        """Look for changed files."""
        files = profile_files(self._home).values()
        try:
            seen = {path: path.stat().st_mtime for path in files}
        except FileNotFoundError:
            return  # Removed this moment: the next look will not find it.
        if seen != self._seen:
            self._seen = seen
            self.profiles = tuple(profile for path in seen if (profile := _read(path)))


def _read(path: Path) -> Profile | None:
    try:
        profile = read_profile(path)
    except UsageError as error:
        log.warning("profile left out: %s", error)
        return None
    return msgspec.structs.replace(
        profile, flags=redact_values(profile.flags), env=redact_values(profile.env)
    )
