"""Public configs of models that come with the package, for plans without a checkpoint."""

from __future__ import annotations

import difflib
from pathlib import Path

from panel.domain.errors import UsageError

_FOLDER = Path(__file__).parent / "data" / "models"


def shipped_models() -> tuple[str, ...]:
    """Return the names."""
    return tuple(sorted(path.stem for path in _FOLDER.glob("*.json")))


def model_config(name: str) -> Path:
    """Return the `config.json` of a shipped model, or raise `UsageError`."""
    names = shipped_models()
    if name not in names:
        close = difflib.get_close_matches(name, names, n=1, cutoff=0.4)
        hint = f"did you mean {close[0]}?" if close else f"there are: {', '.join(names)}"
        raise UsageError(f"no config of a model {name!r}", hint)
    return _FOLDER / f"{name}.json"
