"""The model of a launch, as far as its `config.json` tells."""

from __future__ import annotations

import fnmatch
import json
import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any, NamedTuple

from panel.domain.errors import UsageError
from panel.server.config import ModelError, parse_config
from panel.server.shape import ModelConfig

_BF16 = 2.0
_FLOATS = {"float32": 4.0, "bfloat16": 2.0, "float16": 2.0}


class Quantisation(NamedTuple):
    """How weights are stored."""

    method: str
    """Empty for none."""
    width: float
    """Bytes of a quantised weight, its share of the scales included."""
    ignored: tuple[str, ...]
    """Modules that are not quantised: `re:` and a pattern, or a name with wildcards."""

    def covers(self, module: str) -> bool:
        """Whether a module's weights are quantised."""
        return bool(self.method) and not any(_matches(each, module) for each in self.ignored)


class Vision(NamedTuple):
    """The vision tower of a wrapper."""

    layers: int
    hidden: int
    intermediate: int


class Model(NamedTuple):
    """Shape, weights and class of a model."""

    shape: ModelConfig
    quantisation: Quantisation
    width: float
    """Bytes of a weight that is not quantised."""
    vision: Vision | None
    mtp_layers: int
    """Layers that predict further tokens, beside those of the shape."""
    folder: Path | None = None
    """The checkpoint, where it is on this node."""

    def bytes_of(self, module: str) -> float:
        """Return the bytes of one weight of a module."""
        return self.quantisation.width if self.quantisation.covers(module) else self.width


def read_model(path: Path, folder: Path | None = None) -> Model:
    """Return the model of a `config.json`. Raises `UsageError` for one that cannot be planned."""
    try:
        return parse_model(json.loads(path.read_text()), folder)
    except (OSError, ValueError) as error:
        raise UsageError(f"{path}: cannot be read: {error}") from None
    except (ModelError, KeyError, TypeError, AttributeError) as error:
        raise UsageError(f"{path}: no memory plan for this model: {error}") from None


def parse_model(raw: Mapping[str, Any], folder: Path | None = None) -> Model:
    """Return the model of a parsed `config.json`."""
    text = raw.get("text_config") or raw.get("language_config") or raw
    # Our own engine's parser refuses weights that only other engines can read.
    plain = {key: value for key, value in text.items() if key != "quantization_config"}
    shape = parse_config({**plain, "architectures": raw.get("architectures")})
    quantisation = raw.get("quantization_config") or text.get("quantization_config")
    dtype = raw.get("torch_dtype") or raw.get("dtype") or text.get("torch_dtype")
    return Model(
        shape=shape,
        quantisation=_quantisation(quantisation or {}),
        width=_FLOATS.get(str(dtype), _BF16),
        vision=_vision(raw.get("vision_config")),
        mtp_layers=int(text.get("num_nextn_predict_layers") or 0),
        folder=folder,
    )


def _quantisation(block: Mapping[str, Any]) -> Quantisation:
    """Read the forms that checkpoints of MoE models come in; scales count as part of a weight."""
    method = str(block.get("quant_method", ""))
    ignored = tuple(block.get("ignore") or block.get("modules_to_not_convert") or ())
    match method:
        case "":
            return Quantisation("", _BF16, ())
        case "fp8":
            rows, columns = block.get("weight_block_size") or (128, 128)
            kept = ("*embed_tokens*", "*lm_head*", *ignored)
            return Quantisation("fp8", 1 + 4 / (rows * columns), kept)
        case "modelopt":
            if block.get("quant_algo") == "FP8":
                return Quantisation("modelopt_fp8", 1.0, ignored)
            return Quantisation("modelopt_fp4", 0.5 + 1 / int(block.get("group_size", 16)), ignored)
        case "compressed-tensors":
            groups: Mapping[str, Any] = block.get("config_groups") or {}
            first: Mapping[str, Any] = next(iter(groups.values()), {})
            weights = first.get("weights") or {}
            bits, group = int(weights.get("num_bits", 8)), weights.get("group_size")
            return Quantisation(method, bits / 8 + (_BF16 / int(group) if group else 0), ignored)
    bits = int(block.get("bits") or block.get("w_bit") or 8)
    group = int(block.get("group_size") or 0)
    return Quantisation(method, bits / 8 + (_BF16 / group if group > 0 else 0), ignored)


def _vision(raw: Mapping[str, Any] | None) -> Vision | None:
    if not raw:
        return None
    layers, hidden, intermediate = (
        raw.get(name) or raw.get(f"vt_{name}")
        for name in ("num_hidden_layers", "hidden_size", "intermediate_size")
    )
    if not layers or not hidden:
        return None
    return Vision(int(layers), int(hidden), int(intermediate or 4 * int(hidden)))


def _matches(pattern: str, module: str) -> bool:
    if pattern.startswith("re:"):
        return re.match(pattern[3:], module) is not None
    return fnmatch.fnmatchcase(module, pattern) or module.startswith(f"{pattern}.")
