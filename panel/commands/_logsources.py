"""Which logs `moepanel logs` reads: of a launch, or files of any machine."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import NamedTuple

from panel.commands._sourcelog import Paths
from panel.domain.errors import NotFoundError
from panel.logs.records import rank_of
from panel.supervisor.evidence import Folder, LaunchSpec, read_json

_SUFFIX = ".log"
_PACKED = ".log.gz"


class Selection(NamedTuple):
    """What the operator wants to read."""

    ranks: tuple[int, ...] = ()
    names: tuple[str, ...] = ()


class Sources:
    """The logs of an evidence folder, or single files, by name."""

    def __init__(self, folder: Folder | None, files: Sequence[Path], wanted: Selection) -> None:
        self.folder = folder
        self._files = files
        self._wanted = wanted

    def find(self) -> list[Paths]:
        """Return the logs wanted that exist by now."""
        paths = [*self._all()]
        by_source = any(rank_of(found.source) is not None for found in paths)
        return [found for found in paths if self._is_wanted(found.source, by_source)]

    def ranks_inside(self, paths: Sequence[Paths]) -> tuple[int, ...]:
        """Return the ranks to look for inside logs that several ranks write."""
        if any(rank_of(found.source) is not None for found in paths):
            return ()
        return self._wanted.ranks

    def world(self, paths: Sequence[Paths]) -> tuple[int, ...]:
        """Return the ranks there are, as far as the folder or the files say."""
        spec = read_json(self.folder.launch, LaunchSpec) if self.folder else None
        if spec:
            return tuple(range(spec.world_size))
        ranks = {rank_of(found.source) for found in paths}
        return tuple(sorted(rank for rank in ranks if rank is not None))

    def none_found(self) -> NotFoundError:
        """Return the error that says what there is instead."""
        names = ", ".join(sorted(found.source for found in self._all()))
        return NotFoundError("there is no such log", f"there is: {names or 'none'}")

    def _is_wanted(self, source: str, by_source: bool) -> bool:
        ranks, names = self._wanted
        if not ranks and not names:
            return True
        if source in names:
            return True
        return rank_of(source) in ranks if by_source else bool(ranks)

    def _all(self) -> Iterator[Paths]:
        if self.folder is None:
            for path in self._files:
                yield Paths(_name(path), path)
            return
        # Of a log that is there both plain and packed, the plain one is it.
        found = {_name(path): path for path in self.folder.path.glob(f"*{_PACKED}")}
        found |= {_name(path): path for path in self.folder.path.glob(f"*{_SUFFIX}")}
        for source, path in sorted(found.items()):
            holes = self.folder.path / f"{source}.holes"
            yield Paths(source, path, self.folder.times(source), holes)


def _name(path: Path) -> str:
    return path.name.removesuffix(".gz").removesuffix(_SUFFIX)
