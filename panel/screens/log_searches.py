"""The searches of a logs screen: errors, warnings, what is sought, what a filter lets through."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from enum import StrEnum
from functools import partial

from textual.screen import Screen
from textual.worker import Worker

from panel.client import Client
from panel.logs.query import Query
from panel.logs.records import Level
from panel.screens.finder import Finder
from panel.widgets.log_hits import Hits
from panel.widgets.log_model import Picked, Place

_ERRORS = Query(level=Level.ERROR, heads=True)
_WARNINGS = Query(level=Level.WARNING, heads=True)


class Kind(StrEnum):
    """One search of each at a time."""

    ERRORS = "errors"
    WARNINGS = "warnings"
    SEARCH = "search"
    FILTER = "filter"


@dataclass(frozen=True, slots=True)
class Subject:
    """Where is searched."""

    launch: int = 0
    picked: Picked = frozenset()
    follow: bool = False


class Searches:
    """Runs them as workers of the screen, which end with it."""

    def __init__(
        self, screen: Screen[None], client: Client, changed: Callable[[Kind], None]
    ) -> None:
        self._screen, self._client, self._changed = screen, client, changed
        self._finders: dict[Kind, Finder] = {}
        self._subject = Subject()

    def __getitem__(self, kind: Kind) -> Finder | None:
        return self._finders.get(kind)

    def turn_to(self, subject: Subject) -> bool:
        """Search there from now on; return whether that is elsewhere."""
        if subject == self._subject:
            return False
        self._subject = subject
        for kind, finder in [*self._finders.items()]:
            self.start(kind, finder.query)
        return True

    def start(self, kind: Kind, query: Query) -> Finder:
        """Search for this, and no longer for what was sought before."""
        subject = self._subject
        ranks = tuple(sorted(each for each in subject.picked if isinstance(each, int)))
        sources = tuple(sorted(each for each in subject.picked if isinstance(each, str)))
        finder = self._finders[kind] = Finder(self._client, replace(query, ranks=ranks))

        async def search() -> None:
            told = partial(self._told, kind, finder)
            await finder.run(subject.launch, sources, subject.follow, told)

        # Not a coroutine, which a worker that is cancelled early would never await.
        _: Worker[None] = self._screen.run_worker(search, group=kind, exclusive=True)
        return finder

    def again(self) -> None:
        """Start those anew that broke off."""
        for kind, finder in [*self._finders.items()]:
            if finder.trouble:
                self.start(kind, finder.query)

    def stop(self, kind: Kind) -> None:
        """Seek it no longer."""
        if self._finders.pop(kind, None):
            self._screen.workers.cancel_group(self._screen, kind)

    def errors(self) -> Finder:
        """Return the errors; the search for them begins with the first question."""
        return self[Kind.ERRORS] or self.start(Kind.ERRORS, _ERRORS)

    def warnings(self) -> Finder:
        """Return warnings and errors."""
        return self[Kind.WARNINGS] or self.start(Kind.WARNINGS, _WARNINGS)

    @property
    def trouble(self) -> str:
        """Why one of them broke off."""
        return next((f.trouble for f in self._finders.values() if f.trouble), "")

    def _told(self, kind: Kind, finder: Finder) -> None:
        # One that was stopped has a last word, too late.
        if self._finders.get(kind) is finder:
            self._changed(kind)


def beside(hits: Hits, at: Place | None, step: int) -> Place | None:
    """Return the next hit behind a place, 1, or the last before it, -1; without one the first or
    last of all."""
    found = hits.after(at) if step > 0 else hits.before(at)
    return found[0] if found else None
