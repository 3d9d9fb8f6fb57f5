"""Reading an operator's TOML file: each error names the file, the key and the way out."""

from __future__ import annotations

import difflib
import tomllib
from collections.abc import Iterable
from pathlib import Path
from typing import Any

from panel.domain.errors import UsageError


def read_toml(path: Path) -> dict[str, Any]:
    """Return the table of a file, or raise `UsageError`."""
    try:
        return tomllib.loads(path.read_text())
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
        raise UsageError(f"{path}: {error}", "mend that line, or remove the file") from None
    except OSError as error:
        raise UsageError(f"{path}: cannot be read: {error.strerror}") from None


def refuse_unknown(path: Path, keys: Iterable[str], known: tuple[str, ...]) -> None:
    """Raise `UsageError` for the first of `keys` that is not in `known`."""
    for key in keys:
        if key not in known:
            close = difflib.get_close_matches(key, known, n=1, cutoff=0.5)
            hint = f"did you mean {close[0]}?" if close else f"known keys: {', '.join(known)}"
            raise UsageError(f"{path}: unknown key {key!r}", hint)


def typed(path: Path, table: dict[str, Any], key: str, default: Any) -> Any:
    """Return `table[key]`, which must have the type of `default`, or the default."""
    value = table.get(key, default)
    if type(value) is not type(default):
        words = {str: "a text in quotes", bool: "true or false", dict: "a table", list: "a list"}
        raise UsageError(f"{path}: {key} must be {words[type(default)]}, not {value!r}")
    return value
