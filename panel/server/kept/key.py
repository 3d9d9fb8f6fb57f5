"""Which weights a rank would load: equal keys, equal bytes."""

from __future__ import annotations

import hashlib
import sys
from collections.abc import Iterable
from pathlib import Path

import torch

from panel.server.parallel import shard_of
from panel.server.place import Place
from panel.server.sizes import max_context

_CODE = Path(__file__).parents[1]
_READ = (".safetensors", ".json")


def key_of(place: Place) -> str:
    """Return the key of what the ranks of this launch load, the same on all of them."""
    options, dummy = place.options, place.options.load_format == "dummy"
    facts = (
        place.config,
        shard_of(options, 0),
        place.location,
        place.device.type,
        place.dtype,
        max_context(options, place.config),
        options.seed if dummy else stand(sorted(_files(place.folder, _READ))),
        stand(sorted(_CODE.rglob("*.py"))),
        torch.__version__,
        sys.version,
    )
    return hashlib.sha256(repr(facts).encode()).hexdigest()


def stand(paths: Iterable[Path]) -> list[tuple[str, int, int]]:
    """Return path, size and time of the last change (ns) of each file."""
    return [
        (str(path), found.st_size, found.st_mtime_ns) for path in paths if (found := path.stat())
    ]


def _files(folder: Path, suffixes: tuple[str, ...]) -> Iterable[Path]:
    return (path for path in folder.iterdir() if path.suffix in suffixes)
