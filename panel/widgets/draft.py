"""The next launch while it is being configured. Pure."""

from __future__ import annotations

import re

import msgspec

from panel.domain.flags import Flag
from panel.domain.plan import Plan
from panel.domain.wire import Relaunch

_CHIPS = {
    "ep": re.compile(r"ep\d+"),
    "spec": re.compile(r"[a-z][a-z0-9]*:\d+"),
    "graphs": re.compile(r"graphs\S+"),
}
"""How a plan's chips tell the state of the neutral toggles, whatever the engine."""
DEFAULT_SPEC = "ngram:4"


class Draft(msgspec.Struct, frozen=True, kw_only=True):
    """What differs from the last request, or from a profile."""

    profile: str | None = None
    """None keeps that of the last request."""
    set: dict[str, str] = {}
    unset: tuple[str, ...] = ()

    def with_flags(self, flags: dict[str, str]) -> Draft:
        """Return this draft with some flags set; one with an empty text is left to the engine."""
        kept = {name: text for name, text in (self.set | flags).items() if text}
        unset = [name for name in self.unset if name not in flags]
        unset += [name for name, text in flags.items() if not text]
        return Draft(profile=self.profile, set=kept, unset=tuple(unset))

    def flipped(
        self, toggle: str, chips: tuple[str, ...], base: tuple[str, ...] | None = None
    ) -> Draft:
        """Return this draft with EP or speculation turned over; `chips` are of the last plan.

        What is as in `base`, the chips without changes, where they are known, is no change.
        """
        now = self.set.get(toggle) or toggled(chips, toggle)
        on = "on" if toggle == "ep" else DEFAULT_SPEC
        if base is not None and (toggled(base, toggle) == "off") == (now != "off"):
            kept = {name: text for name, text in self.set.items() if name != toggle}
            return Draft(profile=self.profile, set=kept, unset=self.unset)
        return self.with_flags({toggle: on if now == "off" else "off"})

    def request(self, *, force: bool = False) -> Relaunch:
        """Return the request for it."""
        return Relaunch(profile=self.profile, set=self.set, unset=self.unset, force=force)


def toggled(chips: tuple[str, ...], toggle: str) -> str:
    """Return the chip of a neutral toggle, or `off`."""
    pattern = _CHIPS[toggle]
    return next((chip for chip in chips if pattern.fullmatch(chip)), "off")


def editable(chips: tuple[str, ...], toggle: str) -> str:
    """Return the text that would set a toggle to what it is: `off`, `8`, `ngram:4`, `16`."""
    chip = toggled(chips, toggle)
    return chip if toggle == "spec" or chip == "off" else re.sub(r"^\D+", "", chip)


def memory_flag(flags: list[Flag]) -> Flag | None:
    """Return the flag that says how much memory the engine may take."""
    return next((flag for flag in flags if flag.group == "memory" and flag.common), None)


def value_of(plan: Plan, flag: Flag) -> str:
    """Return a flag's text in a plan, the engine's default where it is not passed."""
    return plan.values().get(flag.name, flag.default or "engine decides")


def matching(flags: list[Flag], needle: str) -> list[Flag]:
    """Return flags whose name or help contains every word typed; names first, common ones first."""
    words = needle.casefold().split()
    found = [f for f in flags if all(w in f"{f.name} {f.help}".casefold() for w in words)]
    return sorted(found, key=lambda f: (not all(w in f.name for w in words), not f.common, f.name))
