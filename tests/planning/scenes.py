"""Scenes for tests of rules and memory."""

from __future__ import annotations

import json
from collections.abc import Mapping

from panel.config.models import model_config
from panel.domain.flags import Hardware
from panel.planning.model import Model, parse_model
from panel.planning.scene import GIB, Scene
from panel.planning.weights import weigh

PCIE = Hardware(gpus=8, memory=96 * GIB, capability="12.0", link="pcie")


def model(name: str) -> Model:
    """Return a shipped model."""
    return parse_model(json.loads(model_config(name).read_text()))


def scene(
    engine: str,
    version: str,
    values: Mapping[str, str],
    name: str = "deepseek-v3",
    hardware: Hardware = PCIE,
    env: Mapping[str, str] | None = None,
) -> Scene:
    """Return a scene of a shipped model."""
    found = model(name)
    return Scene(engine, version, values, env or {}, found, weigh(found), hardware)
