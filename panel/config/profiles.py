"""Profiles: named launch recipes in TOML; an operator's file hides the shipped one of its name."""

from __future__ import annotations

import difflib
import os
import re
from pathlib import Path
from typing import Any

from panel.config.home import Home
from panel.config.toml import read_toml, refuse_unknown, typed
from panel.domain.errors import NotFoundError, UsageError
from panel.domain.flags import Profile

_SHIPPED = Path(__file__).parent / "data"
_KEYS = ("engine", "note", "flags", "env")
_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]*")


def profile_files(home: Home) -> dict[str, Path]:
    """Return the file of every profile by name, in the order of the names."""
    files = {path.stem: path for folder in (_SHIPPED, home.profiles) for path in _tomls(folder)}
    return dict(sorted(files.items()))


def load_profile(home: Home, name: str) -> Profile:
    """Return one profile; raises `NotFoundError` and, for a file that is wrong, `UsageError`."""
    files = profile_files(home)
    if name not in files:
        close = difflib.get_close_matches(name, files, n=1, cutoff=0.5)
        hint = f"did you mean {close[0]}?" if close else f"there are: {', '.join(files)}"
        raise NotFoundError(f"no profile {name!r}", hint)
    return read_profile(files[name])


def read_profile(path: Path) -> Profile:
    """Return the profile in a file, or raise `UsageError`."""
    table = read_toml(path)
    refuse_unknown(path, table, _KEYS)
    if "engine" not in table:
        raise UsageError(f"{path}: the key engine is missing", 'add engine = "builtin"')
    flags, env = (typed(path, table, key, {}) for key in ("flags", "env"))
    return Profile(
        name=path.stem,
        engine=typed(path, table, "engine", ""),
        note=typed(path, table, "note", ""),
        flags={name: _text(path, f"flags.{name}", value) for name, value in flags.items()},
        env={name: _text(path, f"env.{name}", value) for name, value in env.items()},
        shipped=path.parent == _SHIPPED,
    )


def save_profile(home: Home, profile: Profile) -> Path:
    """Write the operator's file of a profile, keep comments and layout of the one it replaces.

    Returns the path. Raises `UsageError` for a name that is no file name.
    """
    import tomlkit

    if not _NAME.fullmatch(profile.name):
        raise UsageError(f"profile name {profile.name!r}", "take letters, digits, dot, dash")
    path = home.profiles / f"{profile.name}.toml"
    known = profile_files(home).get(profile.name)
    document = tomlkit.parse(known.read_text()) if known else tomlkit.document()
    document["engine"] = profile.engine
    if profile.note or "note" in document:
        document["note"] = profile.note
    for key, values in (("flags", profile.flags), ("env", profile.env)):
        if values or key in document:
            _update(document.setdefault(key, tomlkit.table()), values)
    fresh = path.with_suffix(".new")
    with open(os.open(fresh, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600), "w") as file:
        file.write(tomlkit.dumps(document))
    fresh.replace(path)
    return path


def _tomls(folder: Path) -> list[Path]:
    return [path for path in folder.glob("*.toml") if _NAME.fullmatch(path.stem)]


def _text(path: Path, key: str, value: Any) -> str:
    match value:
        case bool():
            return str(value).lower()
        case str() | int() | float():
            return str(value)
        case list():
            return ",".join(_text(path, key, item) for item in value)
    raise UsageError(f"{path}: {key} must be a text, number, switch or list, not {value!r}")


def _update(table: Any, values: dict[str, str]) -> None:
    """Make `table` say `values`; what says so already stays as it was written."""
    for name in [name for name in table if name not in values]:
        del table[name]
    for name, text in values.items():
        if name not in table or _text(Path(), name, table.unwrap()[name]) != text:
            table[name] = _typed(text)


def _typed(text: str) -> bool | int | str:
    if text in ("true", "false"):
        return text == "true"
    return int(text) if text.isascii() and text.isdigit() and str(int(text)) == text else text
