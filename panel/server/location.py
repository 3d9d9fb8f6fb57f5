"""Expert location metadata: which expert each slot holds when the engine starts."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path

from panel.server.options import OptionError, Options
from panel.server.shape import ModelConfig

Table = tuple[tuple[int, ...], ...]
"""For each layer with experts the expert in each slot."""

TRIVIAL = "trivial"
_FLAG = "init-expert-location"
_KEY = "physical_to_logical_map"


def initial_location(config: ModelConfig, options: Options) -> Table:
    """Return the slots' experts for each layer with experts, or raise `OptionError`.

    Files have the key `physical_to_logical_map`: for each layer, or for each layer with experts,
    the expert in each slot.
    """
    slots = slot_count(config, options)
    if options.init_expert_location == TRIVIAL:
        experts = config.experts.routed
        return tuple(tuple(slot % experts for slot in range(slots)) for _ in config.expert_layers)
    path = Path(options.init_expert_location)
    try:
        return check_table(_read(path), config, slots)
    except (OSError, ValueError, TypeError, KeyError) as error:
        reason = f"{_KEY} is missing" if isinstance(error, KeyError) else str(error)
        raise OptionError(
            f"{_FLAG} {path}: does not fit model class {config.model_class}: {reason}; "
            f"use {TRIVIAL} or a file made for this model and these flags"
        ) from None


def slot_count(config: ModelConfig, options: Options) -> int:
    """Return the slots of a layer: one for each expert, and the redundant ones."""
    return config.experts.routed + options.ep_num_redundant_experts


def check_table(rows: Sequence[Sequence[int]], config: ModelConfig, slots: int) -> Table:
    """Return the rows of the layers with experts, or raise `ValueError` with what is wrong."""
    layers = config.expert_layers
    if len(rows) == config.layers:
        rows = [rows[layer] for layer in layers]
    if len(rows) != len(layers):
        raise ValueError(
            f"it has {len(rows)} layers, the model {config.layers}, "
            f"of which {len(layers)} with experts"
        )
    every = set(range(config.experts.routed))
    for layer, row in zip(layers, rows, strict=True):
        if len(row) != slots:
            raise ValueError(f"layer {layer} has {len(row)} slots, the flags ask for {slots}")
        if strange := set(row) - every:
            raise ValueError(f"layer {layer} names expert {min(strange)}; there are {len(every)}")
        if missing := every - set(row):
            raise ValueError(f"layer {layer} has no slot for expert {min(missing)}")
    return tuple(tuple(int(expert) for expert in row) for row in rows)


def _read(path: Path) -> Sequence[Sequence[int]]:
    if path.suffix == ".json":
        rows = json.loads(path.read_text())[_KEY]
    elif path.suffix == ".pt":
        # The panel's plan reads JSON alone: its process must not import torch.
        import torch

        try:
            content = torch.load(path, weights_only=True)
        except OSError:
            raise
        except Exception as error:  # Torn files make the reader fail in ways of all kinds.
            raise ValueError(f"it cannot be read: {error!r}") from None
        rows = content[_KEY]
        rows = rows.tolist() if isinstance(rows, torch.Tensor) else rows
    else:
        raise ValueError("its name ends neither with .json nor with .pt")
    if not all(isinstance(row, list) and all(type(e) is int for e in row) for row in rows):
        raise ValueError(f"{_KEY} is no table of whole numbers")
    table: Sequence[Sequence[int]] = rows
    return table
