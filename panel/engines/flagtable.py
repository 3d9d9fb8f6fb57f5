"""The flags of one version of an engine, as data."""

from __future__ import annotations

import difflib
import functools
import tomllib
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import NamedTuple

import msgspec

from panel.domain.errors import UsageError
from panel.domain.flags import Flag
from panel.domain.versions import numbers

_FOLDER = Path(__file__).parent / "flagtables"


class Rename(msgspec.Struct, frozen=True, kw_only=True):
    """What became of a flag of another version."""

    name: str
    since: str
    """First version that goes by the new name, or by none."""
    to: str | None = None
    """None: gone."""
    value: str | None = None
    """What the new flag is set to, where its values differ."""
    why: str = ""


class Settled(NamedTuple):
    """Flags under the names of one version."""

    values: dict[str, str]
    notes: tuple[str, ...]
    """One for each rename that was followed."""


class FlagTable(msgspec.Struct, frozen=True, kw_only=True):
    """All flags of one version."""

    engine: str
    version: str
    flags: tuple[Flag, ...]
    renames: tuple[Rename, ...] = ()

    def find(self, name: str) -> Flag | None:
        """Return the flag of a name or alias; of `a.b`, a field of a JSON flag, that of `a`."""
        whole = name.partition(".")[0]
        return next((flag for flag in self.flags if whole in (flag.name, *flag.aliases)), None)

    def settle(self, values: Mapping[str, str]) -> Settled:
        """Return `values` under this version's names.

        Raises `UsageError` for a flag that is unknown, gone or ambiguous here.
        """
        settled: dict[str, str] = {}
        notes = []
        for name, text in values.items():
            flag, rename = self.find(name), self._renamed(name)
            if flag is not None and (rename is None or rename.to is None):
                settled[flag.name + name[len(name.partition(".")[0]) :]] = text
                continue
            if rename is None or rename.to is None:
                raise self._unknown(name, rename)
            if text != "false":
                settled[rename.to] = text if rename.value is None else rename.value
            notes.append(f"{name} is {rename.to} since {self.engine} {rename.since}")
        return Settled(settled, tuple(notes))

    def check(self, values: Mapping[str, str]) -> None:
        """Raise `UsageError` for an unknown flag, or a value that is not of the flag's kind."""
        for name, text in self.settle(values).values.items():
            flag = self.find(name)
            if flag is not None and "." not in name:
                _check_value(flag, text)

    def argv(self, values: Mapping[str, str]) -> list[str]:
        """Return `values`, which are settled, as the words of a command line."""
        words: list[str] = []
        for name, text in values.items():
            flag = self.find(name)
            if flag is None or flag.kind != "switch":
                many = flag is not None and flag.kind in ("ints", "strs")
                words += [f"--{name}", *(text.split(",") if many else [text])]
            elif text == "true":
                words.append(f"--{name}")
            elif self.engine == "vllm" and flag.default != "false":
                # Its switches come in pairs; SGLang's can only be set.
                words.append(f"--no-{name}")
        return words

    def parse(self, words: Sequence[str]) -> dict[str, str]:
        """Return the flags of a command line, as it was typed for any version of the engine.

        Raises `UsageError` for a word that belongs to no flag.
        """
        values: dict[str, list[str]] = {}
        name = None
        for word in words:
            if word.startswith("-") and not _is_number(word):
                name, equals, text = word.lstrip("-").partition("=")
                name = self._long(name)
                if equals:
                    values[name], name = [text], None
                else:
                    values[name] = []
            elif name is None:
                raise UsageError(f"{word!r} belongs to no flag", "write flags as --name value")
            else:
                values[name].append(word)
        return dict(self._joined(name, texts) for name, texts in values.items())

    def _long(self, name: str) -> str:
        """Return the whole name; the engines' parsers take any beginning that fits one alone."""
        flag = self.find(name)
        if flag is None:
            longer = [
                flag
                for flag in self.flags
                if any(each.startswith(name) for each in (flag.name, *flag.aliases))
            ]
            return longer[0].name if len(longer) == 1 else name
        return flag.name + name[len(name.partition(".")[0]) :]

    def _joined(self, name: str, texts: list[str]) -> tuple[str, str]:
        if texts:
            return name, ",".join(texts)
        positive = self.find(name.removeprefix("no-"))
        if name.startswith("no-") and positive is not None and positive.kind == "switch":
            return positive.name, "false"
        return name, "true"

    def _renamed(self, name: str) -> Rename | None:
        here = numbers(self.version)
        known = {rename.name: rename for rename in self.renames}
        rename = known.get(name)
        if rename is None or numbers(rename.since) > here:
            return None
        while rename.to in known and numbers(known[rename.to].since) <= here:
            rename = known[rename.to]
        return rename

    def _unknown(self, name: str, rename: Rename | None) -> UsageError:
        where = f"{self.engine} {self.version}"
        if rename is not None:
            return UsageError(f"{name}: gone since {self.engine} {rename.since}", rename.why)
        longer = [flag.name for flag in self.flags if flag.name.startswith(name)]
        if len(longer) > 1:
            hint = f"take one of {', '.join(longer[:4])}"
            return UsageError(f"{name}: ambiguous in {where}", hint)
        names = [each for flag in self.flags for each in (flag.name, *flag.aliases)]
        close = difflib.get_close_matches(name, names, n=2, cutoff=0.6)
        hint = f"did you mean {' or '.join(close)}?" if close else "/ on the launch screen searches"
        return UsageError(f"{name}: no flag of {where}", hint)


@functools.cache
def known_versions(engine: str) -> tuple[str, ...]:
    """Return the versions that a table of the engine is shipped for, oldest first."""
    stems = (path.stem.removeprefix(f"{engine}-") for path in _FOLDER.glob(f"{engine}-*.json"))
    return tuple(sorted(stems, key=numbers))


@functools.cache
def load_table(engine: str, version: str = "") -> FlagTable:
    """Return the shipped table nearest to a version: the last one before it, else the first.

    The newest table for an empty version.
    """
    versions = known_versions(engine)
    if not versions:
        raise UsageError(f"no flag table of {engine}")
    wanted = numbers(version) if version else (1 << 30,)
    before = [each for each in versions if numbers(each) <= wanted]
    table = before[-1] if before else versions[0]
    flags = msgspec.json.decode(
        (_FOLDER / f"{engine}-{table}.json").read_bytes(), type=tuple[Flag, ...]
    )
    return dress(engine, version or table, flags)


def dress(engine: str, version: str, flags: Sequence[Flag]) -> FlagTable:
    """Return the table of flags found in an engine, with the panel's own words for the known.

    Those that the panel knows come first, and go by the name that it knows in every version.
    """
    notes = tomllib.loads((_FOLDER / f"{engine}.toml").read_text())
    known: dict[str, dict[str, object]] = notes["flags"]
    dressed = {}
    for flag in flags:
        spellings = (flag.name, *flag.aliases)
        name = next((each for each in spellings if each in known), flag.name)
        dressed[name] = msgspec.structs.replace(
            flag,
            name=name,
            aliases=tuple(each for each in spellings if each != name),
            **known.get(name, {}),
        )
    order = [name for name in known if name in dressed]
    order += [name for name in dressed if name not in known]
    return FlagTable(
        engine=engine,
        version=version,
        flags=tuple(dressed[name] for name in order),
        renames=msgspec.convert(notes["renames"], tuple[Rename, ...]),
    )


def _check_value(flag: Flag, text: str) -> None:
    name = flag.name
    match flag.kind:
        case "int" if not _is_number(text) or "." in text:
            raise UsageError(f"{name}: {text!r} is not a whole number")
        case "float" if not _is_number(text):
            raise UsageError(f"{name}: {text!r} is not a number")
        case "ints" if not all(part.strip().isdigit() for part in text.split(",")):
            raise UsageError(f"{name}: {text!r} is not a list of whole numbers, such as 1,2,4")
        case "switch" if text not in ("true", "false"):
            raise UsageError(f"{name}: a switch is true or false, not {text!r}")
        case "choice" if text not in flag.choices:
            close = difflib.get_close_matches(text, flag.choices, n=1, cutoff=0.5)
            hint = f"did you mean {close[0]}?" if close else f"known: {', '.join(flag.choices)}"
            raise UsageError(f"{name}: {text!r} is no choice", hint)


def _is_number(text: str) -> bool:
    try:
        float(text)
    except ValueError:
        return False
    return True
