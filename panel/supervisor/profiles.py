"""All profiles as snapshots show them, read again when a file changed."""

from __future__ import annotations

import logging
from pathlib import Path

import msgspec

from panel.config.home import Home
from panel.config.profiles import profile_files, read_profiles
from panel.domain.flags import BrokenProfile, Profile
from panel.domain.redact import redact_values

log = logging.getLogger(__name__)


class ProfileCache:
    """The profiles of a home. Those that are wrong are kept apart, and said so in the log."""

    def __init__(self, home: Home) -> None:
        self._home = home
        self._seen: dict[Path, float] = {}
        self.profiles: tuple[Profile, ...] = ()
        self.broken: tuple[BrokenProfile, ...] = ()
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
            profiles, broken = read_profiles(self._home)
            for one in broken:
                log.warning("profile left out: %s", one.error)
            self.profiles, self.broken = tuple(map(_masked, profiles)), tuple(broken)


def _masked(profile: Profile) -> Profile:
    return msgspec.structs.replace(
        profile, flags=redact_values(profile.flags), env=redact_values(profile.env)
    )
