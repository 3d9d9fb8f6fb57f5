"""Files that keep what was measured on a machine, by all that it depends on."""

from __future__ import annotations

import json
import logging
import os
import zlib
from collections.abc import Callable
from pathlib import Path
from typing import Any, TypeVar

import torch

from panel import __version__
from panel.server.place import Place

log = logging.getLogger(__name__)

T = TypeVar("T")


def cache_file(name: str) -> Path:
    """Return where a file of figures is kept."""
    cache = os.environ.get("XDG_CACHE_HOME") or os.path.expanduser("~/.cache")
    return Path(cache, "moepanel", name)


def facts_of(device: torch.device) -> dict[str, object]:
    """Return what all figures depend on, in words that say it to whoever reads the file."""
    return {
        "moepanel": __version__,
        "torch": torch.__version__,
        "device": torch.cuda.get_device_name(device) if device.type == "cuda" else "cpu",
    }


def read_figures(file: Path, key: str, parse: Callable[[Any], T], what: str) -> T | None:
    """Return what is kept under `key`; None where there is nothing that `parse` can read."""
    try:
        found = _entries(file).get(key)
        return None if found is None else parse(found)
    except (OSError, ValueError, TypeError, KeyError, AttributeError) as error:
        log.warning("%s is not a file of %s: %s", file, what, error)
        return None


def keep_figures(file: Path, key: str, figures: object, what: str) -> None:
    """Keep figures beside those of other keys; a file that cannot be written is only warned of."""
    scratch = file.with_name(f"{file.name}.{os.getpid()}")
    try:
        entries = _entries(file) | {key: figures}
        file.parent.mkdir(parents=True, exist_ok=True)
        scratch.write_text(json.dumps(entries, indent=1))
        scratch.replace(file)
    except (OSError, ValueError, TypeError) as error:
        log.warning("%s are not kept in %s: %s", what, file, error)


def agreed(place: Place, found: T | None) -> T | None:
    """Return what was found where all ranks have found the same; they all call this together.

    A file that changes while ranks read it, or GPUs that differ, must not part them.
    """
    votes = place.shared.votes.all(zlib.crc32(repr(found).encode()), place.shared.roster)
    return found if len(set(votes)) == 1 else None


def _entries(file: Path) -> dict[str, Any]:
    try:
        entries: dict[str, Any] = json.loads(file.read_text())
    except FileNotFoundError:
        return {}
    return entries
