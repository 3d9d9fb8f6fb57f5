"""Profiles from shell command lines, and back."""

from __future__ import annotations

import re
import shlex
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple

from panel.domain.errors import UsageError
from panel.domain.flags import Installation, Profile
from panel.domain.redact import redact_values
from panel.engines import find_engine
from panel.engines.flagtable import load_table
from panel.server.options import OPTIONS

_VARIABLE = re.compile(r"([A-Za-z_]\w*)=(.*)", re.DOTALL)
_PYTHON = re.compile(r"(?:.*/)?python[\d.]*")


class Entry(NamedTuple):
    """How an engine is started by hand."""

    words: tuple[str, ...]
    engine: str
    by_python: bool
    positional: str = ""
    """The flag that a first word without dashes stands for."""


_ENTRIES = (
    Entry(("-m", "sglang.launch_server"), "sglang", True),
    Entry(("sglang", "serve"), "sglang", False),
    Entry(("-m", "vllm.entrypoints.openai.api_server"), "vllm", True),
    Entry(("-m", "vllm.entrypoints.cli.main", "serve"), "vllm", True, "model"),
    Entry(("vllm", "serve"), "vllm", False, "model"),
    Entry(("moepanel", "serve"), "builtin", False),
)


def read_command(words: Sequence[str], name: str, version: str = "") -> Profile:
    """Return the profile of a command line that starts an engine.

    `version`: the engine's, where it is not the newest that the panel knows. Whatever stands before
    the engine, such as `docker run`, becomes the profile's command. Raises `UsageError`.
    """
    env, rest = _variables(list(words))
    entry, at = _find_entry(rest)
    before, after = rest[:at], rest[at + len(entry.words) :]
    python = ""
    if entry.by_python and before and _PYTHON.fullmatch(before[-1]):
        python, before = before[-1], before[:-1]
    started = [*([python] if python else []), *entry.words]
    installation = Installation(
        version=version,
        python=python if "/" in python and not before else "",
        command=shlex.join([*before, *started]) if before else "",
    )
    return Profile(
        name=name,
        engine=entry.engine,
        installation=Installation() if entry.engine == "builtin" else installation,
        flags=_flags(entry, after, version),
        env=env,
    )


def write_command(profile: Profile) -> str:
    """Return the command line of a profile, secrets masked."""
    flags = redact_values(profile.flags)
    engine = find_engine(profile.engine).at(profile.installation)
    command = engine.command(flags, Path("launch"))
    if command.spawner is not None:
        argv = ["moepanel", "serve", *command.spawner.argv]
    else:
        argv = command.processes[0].argv
    if argv[0] == sys.executable and not profile.installation.python:
        argv = ["python", *argv[1:]]
    variables = [f"{name}={shlex.quote(text)}" for name, text in redact_values(profile.env).items()]
    return " ".join([*variables, shlex.join(argv)])


def _variables(words: list[str]) -> tuple[dict[str, str], list[str]]:
    """Return the variables that stand before a command, and the command."""
    if words[:1] == ["env"]:
        words = words[1:]
    env = {}
    while words and (match := _VARIABLE.fullmatch(words[0])):
        env[match[1]] = match[2]
        words = words[1:]
    return env, words


def _find_entry(words: list[str]) -> tuple[Entry, int]:
    for at in range(len(words)):
        for entry in _ENTRIES:
            here = words[at : at + len(entry.words)]
            first = here[0].rpartition("/")[2] if here else ""
            if (first, *here[1:]) == entry.words:
                return entry, at
    known = "; ".join(" ".join(entry.words) for entry in _ENTRIES)
    raise UsageError("no engine in this command line", f"known: {known}")


def _flags(entry: Entry, words: list[str], version: str) -> dict[str, str]:
    flags = {}
    if entry.positional and words and not words[0].startswith("-"):
        flags[entry.positional], words = words[0], words[1:]
    if entry.engine == "builtin":
        return flags | _own(words)
    table = load_table(entry.engine, version)
    return flags | table.settle(table.parse(words)).values


def _own(words: list[str]) -> dict[str, str]:
    """Read our own engine's flags, which all are `--name=value`, `--name value` or a switch."""
    names = {option.name for option in OPTIONS}
    values: dict[str, str] = {}
    name = ""
    for word in words:
        if word.startswith("--"):
            name, _, text = word[2:].partition("=")
            values[name] = text or "true"
        elif name:
            values[name] = word
    unknown = [name for name in values if name not in names]
    if unknown:
        raise UsageError(f"{unknown[0]}: no flag of the engine", "moepanel serve --help lists them")
    return values
