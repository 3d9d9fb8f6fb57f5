"""Flags as data, and the request that a launch is made from."""

from __future__ import annotations

from typing import Literal

import msgspec

Toggle = Literal["ep", "spec", "graphs"]
FlagKind = Literal["int", "float", "str", "choice", "ints", "strs", "switch"]


class Flag(msgspec.Struct, frozen=True, kw_only=True):
    """One flag of an engine, as the launch screen offers it."""

    name: str
    """Long name without dashes."""
    kind: FlagKind
    default: str | None
    """As text; None where the engine decides."""
    help: str
    group: str
    choices: tuple[str, ...] = ()
    toggle: Toggle | None = None
    common: bool = False
    aliases: tuple[str, ...] = ()
    """Other spellings, without dashes."""


class Request(msgspec.Struct, frozen=True, kw_only=True):
    """What an operator asked for: a profile and what differs from it."""

    profile: str
    set: dict[str, str] = {}
    """Flag texts by long name, neutral names (ep, spec, graphs) included."""
    unset: tuple[str, ...] = ()
    """Flags of the profile that are not to be passed."""

    def changed(self, set: dict[str, str], unset: tuple[str, ...] = ()) -> Request:  # noqa: A002
        """Return this request with more flags set and others taken back."""
        kept = {name: text for name, text in self.set.items() if name not in unset}
        return Request(
            profile=self.profile,
            set=kept | set,
            unset=tuple(name for name in dict.fromkeys((*self.unset, *unset)) if name not in set),
        )


class Installation(msgspec.Struct, frozen=True, kw_only=True):
    """Where the engine of a profile lives, if not in this interpreter."""

    version: str = ""
    """What to plan for where nothing is installed that could be asked."""
    python: str = ""
    """Interpreter of the virtual environment that the engine is in."""
    command: str = ""
    """Command line that starts it, up to its flags, such as that of a container."""
    stop: str = ""
    """Command line that stops what `command` started."""
    pids: str = ""
    """Command line that prints the process ids of what `command` started."""


class Hardware(msgspec.Struct, frozen=True, kw_only=True):
    """The GPUs that a profile is made for, where the node itself cannot be asked."""

    gpus: int
    memory: int
    """Bytes of one GPU."""
    capability: str = ""
    """Compute capability, such as 12.0."""
    link: Literal["pcie", "nvlink", ""] = ""


class BrokenProfile(msgspec.Struct, frozen=True, kw_only=True):
    """A profile's file that is wrong."""

    name: str
    error: str
    """Names the file."""


class ProfileNode(msgspec.Struct, frozen=True, kw_only=True):
    """One of the nodes over which an engine is launched; the first has its API."""

    name: str
    address: str
    """By which the other nodes' ranks reach it."""
    ssh: str = ""
    """Destination as the system's ssh takes it; empty: this machine."""
    python: str = "python3"
    """Starts an interpreter there that has the panel; may be more words, such as `docker exec`."""
    home: str = ""
    """`MOEPANEL_HOME` there; empty: its default."""
    flags: dict[str, str] = {}
    """Flags of this node alone."""
    env: dict[str, str] = {}


class Profile(msgspec.Struct, frozen=True, kw_only=True):
    """A named launch recipe."""

    name: str
    engine: str
    installation: Installation = Installation()
    model: str = ""
    """Name of the shipped config of its model: a plan needs no weights then."""
    hardware: Hardware | None = None
    flags: dict[str, str] = {}
    env: dict[str, str] = {}
    nodes: tuple[ProfileNode, ...] = ()
    """Empty: this node alone."""
    note: str = ""
    shipped: bool = False
    """It comes with the package and is read only."""
