"""Flags as data, and the request that a launch is made from."""

from __future__ import annotations

from typing import Literal

import msgspec

Toggle = Literal["ep", "spec", "graphs"]
FlagKind = Literal["int", "float", "str", "choice", "ints", "switch"]


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


class Profile(msgspec.Struct, frozen=True, kw_only=True):
    """A named launch recipe."""

    name: str
    engine: str
    flags: dict[str, str] = {}
    env: dict[str, str] = {}
    note: str = ""
    shipped: bool = False
    """It comes with the package and is read only."""
