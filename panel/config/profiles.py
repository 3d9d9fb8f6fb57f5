"""Profiles: named launch recipes in TOML; an operator's file hides the shipped one of its name."""

from __future__ import annotations

import difflib
import os
import re
from pathlib import Path
from typing import Any

import msgspec

from panel.config.home import Home
from panel.config.toml import read_toml, refuse_unknown, typed
from panel.domain.errors import NotFoundError, UsageError
from panel.domain.flags import BrokenProfile, Hardware, Installation, Profile, ProfileNode

_SHIPPED = Path(__file__).parent / "data"
_KEYS = ("engine", "note", "model", "hardware", "flags", "env", "nodes")
_ENGINE_KEYS = ("name", *Installation.__struct_fields__)
_HARDWARE_KEYS = ("gpus", "memory-gib", "capability", "link")
_NODE_KEYS = ProfileNode.__struct_fields__
_OWN_LOGS = ("keeper",)
"""A node's log has its name; these are taken in the evidence folder."""
_GIB = 1 << 30
_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]*")


def profile_files(home: Home) -> dict[str, Path]:
    """Return the file of every profile by name, in the order of the names."""
    files = {path.stem: path for folder in (_SHIPPED, home.profiles) for path in _tomls(folder)}
    return dict(sorted(files.items()))


def is_shipped(name: str) -> bool:
    """Return whether the panel ships a profile of that name."""
    return (_SHIPPED / f"{name}.toml").is_file()


def read_profiles(home: Home) -> tuple[list[Profile], list[BrokenProfile]]:
    """Return all profiles, and those whose files are wrong."""
    profiles, broken = [], []
    for name, path in profile_files(home).items():
        try:
            profiles.append(read_profile(path))
        except UsageError as error:
            broken.append(BrokenProfile(name=name, error=str(error)))
    return profiles, broken


def load_profile(home: Home, name: str) -> Profile:
    """Return one profile; raises `NotFoundError` and, for a file that is wrong, `UsageError`."""
    files = profile_files(home)
    if name not in files:
        close = difflib.get_close_matches(name, files, n=1, cutoff=0.5)
        hint = f"did you mean {close[0]}?" if close else "moepanel profile list shows all"
        raise NotFoundError(f"no profile {name!r}", hint)
    return read_profile(files[name])


def read_profile(path: Path) -> Profile:
    """Return the profile in a file, or raise `UsageError`."""
    table = read_toml(path)
    refuse_unknown(path, table, _KEYS)
    if "engine" not in table:
        raise UsageError(f"{path}: the key engine is missing", 'add engine = "builtin"')
    engine, installation = _engine(path, table)
    flags, env = (typed(path, table, key, {}) for key in ("flags", "env"))
    return Profile(
        name=path.stem,
        engine=engine,
        installation=installation,
        model=typed(path, table, "model", ""),
        hardware=_hardware(path, table),
        note=typed(path, table, "note", ""),
        flags={name: _text(path, f"flags.{name}", value) for name, value in flags.items()},
        env={name: _text(path, f"env.{name}", value) for name, value in env.items()},
        nodes=_nodes(path, table),
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
    for key, text in (("note", profile.note), ("model", profile.model)):
        if text or key in document:
            document[key] = text
    tables = {"flags": profile.flags, "env": profile.env}
    installed = {
        name: text
        for name, text in msgspec.structs.asdict(profile.installation).items()
        if text or name in document.get("engine", ())
    }
    if installed:
        if not isinstance(document.get("engine"), dict):
            document["engine"] = tomlkit.table()
        tables["engine"] = {"name": profile.engine, **installed}
    else:
        document["engine"] = profile.engine
    if profile.hardware is not None:
        tables["hardware"] = _hardware_texts(profile.hardware)
    for key, values in tables.items():
        if values or key in document:
            _update(document.setdefault(key, tomlkit.table()), values)
    if profile.nodes and "nodes" not in document:
        document["nodes"] = [_node_texts(node) for node in profile.nodes]
    fresh = path.with_suffix(".new")
    with open(os.open(fresh, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600), "w") as file:
        file.write(tomlkit.dumps(document))
    fresh.replace(path)
    return path


def _engine(path: Path, table: dict[str, Any]) -> tuple[str, Installation]:
    """Return name and installation: `engine` is a text, or a table with the key `name`."""
    if not isinstance(table["engine"], dict):
        return typed(path, table, "engine", ""), Installation()
    known = typed(path, table, "engine", {})
    refuse_unknown(path, known, _ENGINE_KEYS)
    texts = {key: typed(path, known, key, "") for key in _ENGINE_KEYS}
    name = texts.pop("name")
    if not name:
        raise UsageError(f"{path}: engine.name is missing", 'add name = "sglang"')
    return name, Installation(**texts)


def _hardware(path: Path, table: dict[str, Any]) -> Hardware | None:
    if "hardware" not in table:
        return None
    known = typed(path, table, "hardware", {})
    refuse_unknown(path, known, _HARDWARE_KEYS)
    gpus, gib = known.get("gpus"), known.get("memory-gib")
    if type(gpus) is not int or not isinstance(gib, int | float) or gpus < 1 or gib <= 0:
        raise UsageError(f"{path}: hardware needs gpus = 8 and memory-gib = 79.6, or the like")
    link = typed(path, known, "link", "")
    if link not in ("", "pcie", "nvlink"):
        raise UsageError(f"{path}: hardware.link is pcie or nvlink, not {link!r}")
    capability = typed(path, known, "capability", "")
    return Hardware(gpus=gpus, memory=round(gib * _GIB), capability=capability, link=link)


def _nodes(path: Path, table: dict[str, Any]) -> tuple[ProfileNode, ...]:
    listed = typed(path, table, "nodes", [])
    if not all(isinstance(node, dict) for node in listed):
        raise UsageError(f"{path}: nodes must be tables", "begin each with [[nodes]]")
    nodes = tuple(_node(path, node) for node in listed)
    names = [node.name for node in nodes]
    twice = [name for name in names if names.count(name) > 1]
    if twice:
        raise UsageError(f"{path}: two nodes are called {twice[0]!r}", "give each its own name")
    if len(nodes) == 1:
        raise UsageError(f"{path}: one node is no gang of nodes", "list all, or none")
    return nodes


def _node(path: Path, table: dict[str, Any]) -> ProfileNode:
    refuse_unknown(path, table, _NODE_KEYS)
    name, address = (typed(path, table, key, "") for key in ("name", "address"))
    if not _NAME.fullmatch(name) or name in _OWN_LOGS:
        raise UsageError(f"{path}: node name {name!r}", "take letters, digits, dot, dash")
    if not address:
        raise UsageError(
            f"{path}: node {name} has no address", "add the one by which the other nodes reach it"
        )
    texts = {
        key: {each: _text(path, f"{key}.{each}", value) for each, value in found.items()}
        for key in ("flags", "env")
        if (found := typed(path, table, key, {}))
    }
    return ProfileNode(
        name=name,
        address=address,
        ssh=typed(path, table, "ssh", ""),
        python=typed(path, table, "python", "python3"),
        home=typed(path, table, "home", ""),
        **texts,
    )


def _hardware_texts(hardware: Hardware) -> dict[str, str]:
    texts = {"gpus": str(hardware.gpus), "memory-gib": f"{hardware.memory / _GIB:g}"}
    named = {"capability": hardware.capability, "link": hardware.link}
    return texts | {name: text for name, text in named.items() if text}


def _node_texts(node: ProfileNode) -> dict[str, Any]:
    default = ProfileNode(name="", address="")
    return {
        key: value
        for key, value in msgspec.structs.asdict(node).items()
        if value != getattr(default, key)
    }


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
