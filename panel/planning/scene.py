"""What rules and memory formulas look at: one launch before it happens."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import NamedTuple

from panel.domain.flags import Hardware
from panel.domain.plan import Override
from panel.domain.versions import Span
from panel.planning.model import Model
from panel.planning.weights import Weights

GIB = 1 << 30
_NUMBER = re.compile(r"(-?\d+(?:\.\d+)?)([kKmMgG]?)")
_SCALES = {"": 1, "k": 10**3, "K": 1 << 10, "m": 10**6, "M": 1 << 20, "g": 10**9, "G": 1 << 30}


class Scene(NamedTuple):
    """An engine of some version, its flags under that version's names, model and GPUs."""

    engine: str
    version: str
    values: Mapping[str, str]
    env: Mapping[str, str] = {}
    model: Model | None = None
    weights: Weights | None = None
    """Of the model."""
    hardware: Hardware | None = None

    def text(self, name: str, otherwise: str = "") -> str:
        """Return a flag's text."""
        return self.values.get(name, otherwise)

    def number(self, name: str, otherwise: int = 0) -> int:
        """Return a flag's whole number, of vLLM's also `8k`; `otherwise` for a word like auto."""
        found = _NUMBER.fullmatch(self.values.get(name, ""))
        return int(float(found[1]) * _SCALES[found[2]]) if found else otherwise

    def count(self, name: str) -> int:
        """Return a flag's number of ranks, nodes or tokens, which is at least 1."""
        return max(1, self.number(name, 1))

    def on(self, name: str) -> bool:
        """Whether a switch is set."""
        return self.values.get(name) == "true"

    def of(self, span: str) -> bool:
        """Whether the version lies in a span such as `<0.5.10`."""
        return Span.parse(span).holds(self.version)

    def with_values(self, values: Mapping[str, str]) -> Scene:
        """Return this scene with more flags."""
        return self._replace(values={**self.values, **values})


class Settled(NamedTuple):
    """A scene as the engine will really run it, and what it changed without being asked."""

    scene: Scene
    overrides: tuple[Override, ...]
