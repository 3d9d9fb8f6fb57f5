"""Write the flag table of one version of an engine: `flagtables.py sglang 0.5.9 FOLDER`.

FOLDER is the unpacked package, such as the folder `sglang` of its wheel.
"""

from __future__ import annotations

import sys
from pathlib import Path

import msgspec

from panel.engines import flagtable
from panel.engines.flagsource import read_flags


def main(engine: str, version: str, package: str) -> None:
    """Write the table, a flag a line."""
    flags = read_flags(engine, Path(package))
    encode = msgspec.json.Encoder(order="deterministic").encode
    lines = ",\n".join(encode(_short(msgspec.to_builtins(flag))).decode() for flag in flags)
    path = Path(flagtable.__file__).parent / "flagtables" / f"{engine}-{version}.json"
    path.write_text(f"[\n{lines}\n]\n")
    print(f"{path}: {len(flags)} flags")


def _short(flag: dict[str, object]) -> dict[str, object]:
    """Leave out what is empty and has a default."""
    needed = ("name", "kind", "default", "help", "group")
    return {key: value for key, value in flag.items() if value or key in needed}


if __name__ == "__main__":
    main(*sys.argv[1:])
