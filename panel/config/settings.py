"""`config.toml`: what an operator may set for the whole panel."""

from __future__ import annotations

from pathlib import Path
from typing import NamedTuple

from panel.config.toml import read_toml, refuse_unknown, typed


class Settings(NamedTuple):
    """The keys of the file with their defaults."""

    profile: str = "tiny"
    """Launched where no other profile is named."""
    warm: bool = True
    """Keep a process with torch imported ready for the next launch."""


def load_settings(path: Path) -> Settings:
    """Return the settings in `path`; a missing file means the defaults. Raises `UsageError`."""
    if not path.exists():
        return Settings()
    table = read_toml(path)
    refuse_unknown(path, table, Settings._fields)
    defaults = Settings._field_defaults
    return Settings(**{key: typed(path, table, key, defaults[key]) for key in Settings._fields})
