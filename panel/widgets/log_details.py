"""What a row shows below itself when it is opened. Pure."""

from __future__ import annotations

import json

_LONGEST = 1 << 16
_decoder = json.JSONDecoder()


def details(text: str) -> list[str]:
    """Return the JSON object or list that stands in a text, a line each member; else nothing."""
    for start in (at for at, sign in enumerate(text[:_LONGEST]) if sign in "{["):
        try:
            value, _ = _decoder.raw_decode(text, start)
        except (ValueError, RecursionError):
            continue
        if isinstance(value, dict | list) and value:
            return [
                f"  {line}" for line in json.dumps(value, indent=2, ensure_ascii=False).split("\n")
            ]
    return []
