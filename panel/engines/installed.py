"""An engine in an interpreter of its own: its version, and its flags as its own parser has them."""

from __future__ import annotations

import contextlib
import functools
import hashlib
import json
import os
import subprocess
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import msgspec

from panel.config.home import find_home
from panel.domain.flags import Flag, FlagKind
from panel.engines.flagsource import read_flags
from panel.engines.flagtable import FlagTable, dress

_ASKING = Path(__file__).with_name("ask_parser.py")
"""Runs in the engine's interpreter, whatever its version: it imports nothing of ours."""
_WHERE = """
import importlib.metadata, importlib.util, sys
print(importlib.metadata.version(sys.argv[1]))
print(importlib.util.find_spec(sys.argv[1]).submodule_search_locations[0])
"""
_WHERE_S = 20.0
_PARSER_S = 120.0
"""Importing an engine may take half a minute from a cold disk."""
_MARK = "moepanel-flags:"
_KINDS: dict[str, FlagKind] = {"int": "int", "float": "float", "human_readable_int": "int"}


class Installed(NamedTuple):
    """What an interpreter has."""

    python: str
    version: str
    package: Path


def find_installed(engine: str, python: str = "") -> Installed | None:
    """Return the engine that `python` (empty: this interpreter) has, None where it has none."""
    program = Path(python or sys.executable)
    # Whatever is installed, upgraded or removed changes the folder that it is in.
    sites = program.parent.parent.glob("lib/python3*/site-packages")
    stamps = tuple(folder.stat().st_mtime_ns for folder in sites)
    return _find(engine, str(program), stamps)


@functools.lru_cache(maxsize=16)
def _find(engine: str, python: str, _stamps: tuple[int, ...]) -> Installed | None:
    try:
        said = subprocess.run(
            [python, "-c", _WHERE, engine],
            capture_output=True,
            text=True,
            timeout=_WHERE_S,
            check=True,
            stdin=subprocess.DEVNULL,
            cwd="/",
        ).stdout.splitlines()
        version, package = said[-2:]
    except (OSError, subprocess.SubprocessError, ValueError):
        return None
    return Installed(python, version, Path(package))


@functools.lru_cache(maxsize=16)
def installed_table(engine: str, found: Installed) -> FlagTable | None:
    """Return the flags of an installed engine: those its parser had when it was last asked, those
    it has now, or those its source defines; None where neither can be had.

    Asking takes as long as importing the engine, once for each version.
    """
    key = hashlib.sha256(found.python.encode()).hexdigest()[:12]
    cache = find_home().state / "engines" / f"{engine}-{found.version}-{key}.json"
    with contextlib.suppress(OSError, msgspec.DecodeError):
        kept = msgspec.json.decode(cache.read_bytes(), type=tuple[Flag, ...])
        return dress(engine, found.version, kept)
    flags = _ask(engine, found.python)
    if flags:
        with contextlib.suppress(OSError):
            cache.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
            fresh = cache.with_suffix(f".{os.getpid()}")
            fresh.write_bytes(msgspec.json.encode(flags))
            fresh.replace(cache)
    else:
        with contextlib.suppress(OSError, SyntaxError):
            flags = read_flags(engine, found.package)
    return dress(engine, found.version, flags) if flags else None


def _ask(engine: str, python: str) -> tuple[Flag, ...]:
    """Return the flags of the engine's own parser; none where it cannot be imported."""
    try:
        said = subprocess.run(
            [python, "-c", _ASKING.read_text(), engine],
            capture_output=True,
            text=True,
            timeout=_PARSER_S,
            check=True,
            stdin=subprocess.DEVNULL,
            # Neither the script's folder nor ours may be searched for the engine's modules.
            cwd="/",
        ).stdout
    except (OSError, subprocess.SubprocessError):
        return ()
    marked = (line for line in said.splitlines() if line.startswith(_MARK))
    answer: list[dict[str, Any]] = json.loads(next(marked, _MARK + "[]").removeprefix(_MARK))
    return tuple(flag for action in answer if (flag := flag_of(action)) is not None)


def flag_of(action: Mapping[str, Any]) -> Flag | None:
    """Return the flag of one action of a parser; None where it has no long name."""
    spellings: Sequence[str] = action["options"]
    long = [text for text in spellings if text.startswith("--")]
    if not long or long[0] == "--help":
        return None
    kind: FlagKind = _KINDS.get(action["type"], "str")
    if action["switch"]:
        kind = "switch"
    elif action["many"]:
        kind = "ints" if kind == "int" else "strs"
    elif action["choices"]:
        kind = "choice"
    negative = f"--no-{long[0][2:]}"
    return Flag(
        name=long[0][2:],
        kind=kind,
        default=action["default"],
        help=action["help"],
        group=action["group"],
        choices=tuple(action["choices"]) if kind == "choice" else (),
        aliases=tuple(text.lstrip("-") for text in spellings if text not in (long[0], negative)),
    )
