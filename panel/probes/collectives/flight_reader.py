"""`python -m panel.probes.collectives.flight_reader '{"RANK": "FILE", …}'`: the dumps as JSON.

Plain data only: a pickle that names any class or function is refused.
"""

from __future__ import annotations

import json
import pickle
import sys
from pathlib import Path
from typing import Any, NoReturn

import msgspec

from panel.probes.collectives.flight import Entered

_FRAMES = 4


class _PlainUnpickler(pickle.Unpickler):
    def find_class(self, module_name: str, global_name: str) -> NoReturn:
        raise pickle.UnpicklingError(f"it names {module_name}.{global_name}")


def newest(rank: int, dump: dict[str, Any]) -> list[Entered]:
    """Return the newest collective of each process group in one dump."""
    last: dict[str, dict[str, Any]] = {}
    for entry in dump.get("entries", []):
        if entry.get("is_p2p"):
            continue
        group = _group(entry)
        if group not in last or entry["collective_seq_id"] >= last[group]["collective_seq_id"]:
            last[group] = entry
    return [_entered(rank, group, entry) for group, entry in last.items()]


def _group(entry: dict[str, Any]) -> str:
    name, description = entry.get("process_group", ("?", ""))
    return description if description not in ("", "undefined") else str(name)


def _entered(rank: int, group: str, entry: dict[str, Any]) -> Entered:
    frames = entry.get("frames", [])[:_FRAMES]
    return Entered(
        rank=rank,
        group=group,
        sequence=entry["collective_seq_id"],
        operation=str(entry.get("profiling_name", "?")).removeprefix("nccl:"),
        sizes=str(entry.get("input_sizes", "")),
        state=entry.get("state", "?"),
        frames=tuple(f"{each['name']} {each['filename']}:{each['line']}" for each in frames),
    )


def main(words: str) -> int:
    """Print the newest collectives of all dumps; return the exit code."""
    found = []
    for rank, path in json.loads(words).items():
        with Path(path).open("rb") as file:
            found += newest(int(rank), _PlainUnpickler(file).load())
    sys.stdout.buffer.write(msgspec.json.encode(found))
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1]))
