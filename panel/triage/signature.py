"""Signatures: what each known kind of trouble looks like in a log, as data in `signatures/*.toml`.

A file holds one family. Everything in it is checked when it is loaded.
"""

from __future__ import annotations

import re
import tomllib
from functools import cache
from importlib.resources import files
from typing import Literal, NamedTuple

import msgspec

from panel.domain.versions import Span

Role = Literal["root", "victim", "death", "hang", "stop", "harmless", "hint", "trouble", "inferred"]
"""`root` may name its reporter; `victim` points away from it; `death` tells of another process's
end; `hang` of waiting; `stop` of an end that was asked for; `harmless` lets nothing else match;
`hint` is no failure, but explains one that nothing else does; `trouble` fails
requests while the engine goes on, which is no failure of the launch; `inferred` has no text."""
Scope = Literal["rank", "all", "none", "named", "others"]
"""Whom a root blames: those that report it, every rank, no rank, the rank in the text, or those
that do not report it."""
Place = Literal["any", "line", "trace", "kernel"]

_GROUPS = frozenset(
    (
        "rank",
        "ranks",
        "local_rank",
        "pid",
        "code",
        "name",
        "bus",
        "seq",
        "count",
        "detail",
        "signal",
        "log",
    )
)


class AdviceText(msgspec.Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """One thing to do; words in braces are flags, spelled for the engine's version."""

    why: str
    confirm: bool = False
    """A cheap experiment, not the fix."""
    set: dict[str, str] = {}
    """Flag → value, `+0.04` or `-0.05` from what it is, `/2`."""
    engines: tuple[str, ...] = ()
    versions: str = ""


class Signature(msgspec.Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """How one kind is recognised, whom it blames and what helps."""

    kind: str
    what: str
    """Goes on after `rank 3`: `ran out of GPU memory`."""
    match: tuple[str, ...] = ()
    """Regular expressions; one of them is found in the line or in an exception's message."""
    role: Role = "root"
    scope: Scope = "rank"
    also: tuple[str, ...] = ()
    """All of them stand somewhere in the same record."""
    unless: tuple[str, ...] = ()
    engines: tuple[str, ...] = ()
    phases: tuple[str, ...] = ()
    place: Place = "any"
    late: bool = False
    """Reported some time after it happened, so that who reports it first is weak evidence."""
    general: bool = False
    """Only where no other signature matches."""
    cause: str = ""
    facts: tuple[str, ...] = ()
    """Entries of the failure catalogue it comes from."""
    sign: str = ""
    """By what this kind is told from those that look alike; it holds for all signatures of it."""
    like: tuple[str, ...] = ()
    """Kinds that look alike, the most alike first; it counts in both directions."""
    advice: tuple[AdviceText, ...] = ()
    family: str = ""


class Rule(NamedTuple):
    """A signature ready to use."""

    signature: Signature
    match: tuple[re.Pattern[str], ...]
    also: tuple[re.Pattern[str], ...]
    unless: re.Pattern[str] | None

    @property
    def weight(self) -> int:
        """The more a signature asks for, the more it says."""
        asked = len(self.also) * 2 + bool(self.signature.phases) + bool(self.signature.engines)
        harmless = self.signature.role == "harmless"
        return asked + 100 * harmless - 100 * self.signature.general


class _File(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    family: str
    signature: tuple[Signature, ...]


class Catalog(NamedTuple):
    """All signatures, those that ask for most first."""

    rules: tuple[Rule, ...]

    def of_kind(self, kind: str) -> Signature | None:
        """Return the first signature of a kind that has advice, else the first."""
        found = [rule.signature for rule in self.rules if rule.signature.kind == kind]
        return next((each for each in found if each.advice), found[0] if found else None)

    def family(self, kind: str) -> str | None:
        """Return the family of a kind."""
        found = self.of_kind(kind)
        return found.family if found else None

    def sign(self, kind: str) -> str:
        """Return by what a kind is told from others, empty where nothing says so."""
        own = (rule.signature.sign for rule in self.rules if rule.signature.kind == kind)
        return next(filter(None, own), "")

    def alike(self, kind: str) -> list[str]:
        """Return the kinds that look like this one, those that it names itself first."""
        named = [
            other
            for rule in self.rules
            if rule.signature.kind == kind
            for other in rule.signature.like
        ]
        naming = [rule.signature.kind for rule in self.rules if kind in rule.signature.like]
        return list(dict.fromkeys((*named, *naming)))


@cache
def load() -> Catalog:
    """Return the shipped signatures."""
    folder = files("panel.triage") / "signatures"
    texts = {
        entry.name: entry.read_text("utf-8")
        for entry in folder.iterdir()
        if entry.name.endswith(".toml")
    }
    return read(texts)


def read(texts: dict[str, str]) -> Catalog:
    """Return the signatures of these files, by name. Raises ValueError that says what is wrong."""
    rules = []
    for name, text in sorted(texts.items()):
        try:
            file = msgspec.convert(tomllib.loads(text), _File)
        except (tomllib.TOMLDecodeError, msgspec.ValidationError) as error:
            raise ValueError(f"{name}: {error}") from None
        for signature in file.signature:
            try:
                rules.append(_rule(msgspec.structs.replace(signature, family=file.family)))
            except (re.error, ValueError) as error:
                raise ValueError(f"{name}: {signature.kind}: {error}") from None
    return Catalog(tuple(sorted(rules, key=lambda rule: -rule.weight)))


def _rule(signature: Signature) -> Rule:
    if bool(signature.match) is (signature.role == "inferred"):
        raise ValueError("only what is inferred has nothing to match")
    for text in signature.match:
        unknown = re.compile(text).groupindex.keys() - _GROUPS
        if unknown:
            raise ValueError(f"unknown group {min(unknown)!r}")
    for advice in signature.advice:
        Span.parse(advice.versions)
    return Rule(
        signature,
        tuple(re.compile(text) for text in signature.match),
        tuple(re.compile(text) for text in signature.also),
        re.compile("|".join(signature.unless)) if signature.unless else None,
    )
