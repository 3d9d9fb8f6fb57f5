"""The logs of one launch: where each is, what was punched out of it, how it is written."""

from __future__ import annotations

import contextlib
import gzip
import os
import shutil
import tempfile
import zlib
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import BinaryIO, NamedTuple

from panel.domain.errors import PanelError
from panel.logs.files import open_log
from panel.logs.grammars import Dialect
from panel.logs.grammars.builtin import BUILTIN
from panel.logs.grammars.native import PLAIN
from panel.logs.holes import Hole, parse_holes
from panel.logs.records import survey
from panel.supervisor.evidence import Folder

_SURVEYED = 1 << 20
_MOST_KNOWN = 256
_MOST_UNPACKED = 16
_PACKED = ".log.gz"


class Source(NamedTuple):
    """One log of a launch."""

    name: str
    path: Path
    """Not packed."""
    times: Path
    holes: tuple[Hole, ...] = ()
    merged: bool = False
    """Another engine than ours wrote it, perhaps with several ranks."""


class Manner(NamedTuple):
    """How a log is written."""

    dialect: Dialect = Dialect()
    pids: Mapping[int, int] = {}
    """Ranks by pid."""


class Sources:
    """Finds logs, of whatever launch, and remembers what it cost to learn about them."""

    def __init__(self) -> None:
        self._manners: dict[tuple[str, int], tuple[int, Manner]] = {}
        self._unpacked: dict[tuple[str, int, int], BinaryIO] = {}

    def there(self, folder: Folder, names: Iterable[str]) -> list[str]:
        """Return those of the sources that have a log by now."""
        return [
            name
            for name in sorted(names)
            if folder.log(name).exists() or (folder.path / f"{name}{_PACKED}").exists()
        ]

    def find(self, folder: Folder, engine: str, name: str) -> Source:
        """Return a source, whether its log exists or not. Raises `PanelError` for a damaged one."""
        path, packed = folder.log(name), folder.path / f"{name}{_PACKED}"
        if not path.exists() and packed.exists():
            path = self._unpack(packed)
        holes: tuple[Hole, ...] = ()
        with contextlib.suppress(OSError):
            holes = parse_holes((folder.path / f"{name}.holes").read_bytes())
        return Source(name, path, folder.times(name), holes, engine != BUILTIN.name)

    def manner(self, source: Source) -> Manner:
        """Return how a log is written; one that does not exist yet, as ours are. Raises what
        `open_log` raises."""
        if not source.merged or not source.path.exists():
            return Manner()
        file = open_log(source.path)
        with contextlib.closing(file):
            key = str(source.path), os.stat(source.path).st_ino
            size = min(file.size(), _SURVEYED)
            seen, manner = self._manners.get(key, (0, Manner(Dialect(PLAIN))))
            # The first lines of a launch often are not the engine's, and name no ranks yet.
            if size >= 2 * seen or seen < size == _SURVEYED:
                manner = Manner(*survey(source.name, file.read(0, size)))
                if len(self._manners) >= _MOST_KNOWN:
                    self._manners.clear()
                self._manners[key] = size, manner
        return manner

    def close(self) -> None:
        """Let go of unpacked logs."""
        for file in self._unpacked.values():
            file.close()
        self._unpacked.clear()

    def _unpack(self, packed: Path) -> Path:
        """Return a path to the log without its packing: a file without a name of its own."""
        status = packed.stat()
        key = str(packed), status.st_ino, status.st_size
        if key not in self._unpacked:
            file = tempfile.TemporaryFile()  # noqa: SIM115  (kept, for all who read it)
            try:
                with gzip.open(packed) as stream, contextlib.suppress(EOFError):
                    shutil.copyfileobj(stream, file, 1 << 20)
                file.flush()
            except (OSError, zlib.error) as error:
                file.close()
                raise PanelError(f"{packed} cannot be unpacked: {error}", "try zcat") from None
            while len(self._unpacked) >= _MOST_UNPACKED:
                self._unpacked.pop(next(iter(self._unpacked))).close()
            self._unpacked[key] = file
        return Path(f"/proc/{os.getpid()}/fd/{self._unpacked[key].fileno()}")
