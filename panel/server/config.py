"""Reading a Hugging Face `config.json`."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from panel.server.families import FAMILIES
from panel.server.shape import ModelConfig, ModelError

__all__ = [
    "SHIPPED_MODEL",
    "ModelConfig",
    "ModelError",
    "model_folder",
    "parse_config",
    "read_config",
]

SHIPPED_MODEL = "moe-tiny"
_SHIPPED_FOLDER = Path(__file__).parent / "models"


def model_folder(path: str) -> Path:
    """Return the folder of `--model-path`; the shipped model goes by its bare name."""
    if path == SHIPPED_MODEL and not Path(path).is_dir():
        return _SHIPPED_FOLDER / SHIPPED_MODEL
    return Path(path)


def read_config(folder: Path) -> ModelConfig:
    """Return the shape of the model in `folder`, or raise `ModelError`."""
    file = folder / "config.json"
    try:
        raw = json.loads(file.read_text())
    except FileNotFoundError:
        raise ModelError(
            f"{folder}: no config.json; --model-path is a checkpoint folder or {SHIPPED_MODEL}"
        ) from None
    except (OSError, ValueError) as error:
        raise ModelError(f"{file}: cannot be read: {error}") from None
    try:
        return parse_config(raw)
    except KeyError as error:
        raise ModelError(f"{file}: {error} is missing") from None
    except (ModelError, TypeError, ValueError, AttributeError) as error:
        raise ModelError(f"{file}: {error}") from None


def parse_config(raw: Mapping[str, Any]) -> ModelConfig:
    """Return the shape of a `config.json`; what the engine cannot compute is refused.

    The text part of a multimodal wrapper is found by the wrapper's config.
    """
    text = raw.get("text_config") or raw.get("language_config") or raw
    family = text.get("model_type")
    if family not in FAMILIES:
        raise ModelError(f"model_type {family!r} is not served; served: {', '.join(FAMILIES)}")
    classes = raw.get("architectures") or text.get("architectures") or [str(family)]
    return FAMILIES[family](text, classes[0])
