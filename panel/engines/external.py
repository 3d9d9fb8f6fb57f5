"""What SGLang and vLLM have in common, seen from the panel: one launcher, one log, many ranks."""

from __future__ import annotations

import shlex
import sys
from abc import ABC, abstractmethod
from collections.abc import Mapping
from pathlib import Path
from typing import Self

from panel.domain.errors import UsageError
from panel.domain.flags import Flag, Installation, Toggle
from panel.engines.base import Command, MetricNames, Policy, ProcessJob, Pulse
from panel.engines.flagtable import FlagTable, load_table
from panel.engines.installed import Installed, find_installed, installed_table
from panel.engines.logpulse import LogPulse

SOURCE = "engine"
"""The one log, in which all processes write."""
CONTAINER = "{name}"
"""Stands for the container's name in the command lines of an installation."""


class External(ABC):
    """An engine that somebody else has installed, in an interpreter or a container of its own."""

    name: str
    module: tuple[str, ...]
    """Arguments of the interpreter that start the engine, up to its flags."""
    premature = ""
    """Stands in a line of the log by which the HTTP server alone says that it serves."""
    metric_names: MetricNames
    exit_words: Mapping[int, str] = {}
    victim_codes: frozenset[int] = frozenset()
    spawner: tuple[str, ...] = ()
    health = "/health"
    # Their monitors take seconds to say what they have seen, and to end their own workers.
    policy = Policy(evidence_s=5.0, grace_s=30.0)

    def __init__(self, installation: Installation = Installation()) -> None:  # noqa: B008 (frozen)
        self._at = installation

    def at(self, installation: Installation) -> Self:
        """Return the engine as it is installed there."""
        return type(self)(installation)

    @property
    def outside(self) -> bool:
        """Whether a command line is needed to find its processes."""
        return bool(self._at.pids)

    def environment(self) -> dict[str, str]:
        """Return what keeps the marker of the launch where the keeper looks for it.

        The library by which both engines set their titles overwrites the environment that /proc
        shows, unless it is told not to.
        """
        return {"SPT_NOENV": "1", "PYTHONUNBUFFERED": "1"}

    def version(self) -> str:
        """Return the installed version, else the one that the profile plans for."""
        found = self._installed
        return found.version if found else self._at.version

    def missing(self) -> str | None:
        """Return what the profile must say for the engine to be found."""
        if self._at.command or self._installed:
            return None
        where = self._at.python or "the panel's own interpreter"
        return (
            f"{self.name} is not installed in {where}: set python under engine in the profile to"
            " the interpreter that has it, or command to what starts its container"
        )

    def flags(self) -> tuple[Flag, ...]:
        """Return the flags of the installed version, or of the nearest that is known."""
        return self.table.flags

    def check(self, values: Mapping[str, str]) -> None:
        """Raise `UsageError` for a flag that this version does not have, or a bad value."""
        self.table.check(values)

    @abstractmethod
    def neutral(
        self, toggle: Toggle, text: str, values: Mapping[str, str]
    ) -> dict[str, str | None]:
        """Return the flags that a neutral name stands for."""

    @abstractmethod
    def world_size(self, values: Mapping[str, str]) -> int:
        """Return the number of ranks."""

    @abstractmethod
    def chips(self, values: Mapping[str, str]) -> tuple[str, ...]:
        """Return the launch in a few words."""

    def sources(self, values: Mapping[str, str]) -> dict[str, int | None]:
        """Return the one log."""
        return {SOURCE: None}

    def address(self, values: Mapping[str, str]) -> tuple[str, int]:
        """Return host and port that the API binds."""
        return self.value(values, "host", "0.0.0.0"), self.number(values, "port", 8000)

    def api_key(self, values: Mapping[str, str]) -> str | None:
        """Return the first bearer token that the API accepts."""
        return self.value(values, "api-key", "").partition(",")[0] or None

    @abstractmethod
    def node_flags(self, index: int, count: int, address: str) -> dict[str, str]:
        """Return the flags of one of several nodes."""

    def evidence_flags(self, folder: Path) -> dict[str, str]:
        """Return nothing: the log is taken from the launcher's output."""
        return {}

    def command(self, values: Mapping[str, str], folder: Path) -> Command:
        """Return the launcher's job; a container is named after the launch."""
        container = f"moepanel-{folder.name.lstrip('0')}"
        start, stop, pids = (
            [word.replace(CONTAINER, container) for word in shlex.split(text)]
            for text in (self._at.command, self._at.stop, self._at.pids)
        )
        job = ProcessJob(
            source=SOURCE,
            argv=[*(start or self._start()), *self.argv(values)],
            cwd=None,
            log=str(folder / f"{SOURCE}.log"),
            world_size=self.world_size(values),
            stop=stop,
            pids=pids,
        )
        return Command(processes=[job])

    def pulse(self, folder: Path, world_size: int) -> Pulse | None:
        """Return what the log tells of the ranks, once there is one."""
        try:
            log = folder / f"{SOURCE}.log"
            return LogPulse(log, self.name, world_size, premature=self.premature)
        except OSError:
            return None

    def argv(self, values: Mapping[str, str]) -> list[str]:
        """Return the engine's own arguments, spelled for its version."""
        return self.table.argv(self.table.settle(values).values)

    @property
    def table(self) -> FlagTable:
        """The flags of the version at hand."""
        found = self._installed
        table = installed_table(self.name, found) if found else None
        return table or load_table(self.name, self.version())

    def value(self, values: Mapping[str, str], name: str, otherwise: str) -> str:
        """Return a flag's text, under whatever spelling it is given; its default where it is not.

        `otherwise`: where the engine has no default either.
        """
        flag = self.table.find(name)
        spellings = (name, flag.name, *flag.aliases) if flag else (name,)
        given = next((values[each] for each in spellings if each in values), None)
        if given is not None:
            return given
        return flag.default if flag and flag.default is not None else otherwise

    def number(self, values: Mapping[str, str], name: str, otherwise: int) -> int:
        """Return a flag's number. Raises `UsageError` for a text that is none."""
        text = self.value(values, name, str(otherwise))
        if not text.isdecimal():
            raise UsageError(f"{name}: {text!r} is not a whole number")
        return int(text)

    def known(self, *names: str) -> str:
        """Return the first of these flags that this version has, the last where it has none."""
        return next((name for name in names if self.table.find(name)), names[-1])

    @property
    def _installed(self) -> Installed | None:
        return None if self._at.command else find_installed(self.name, self._at.python)

    def _start(self) -> list[str]:
        return [self._at.python or sys.executable, *self.module]
