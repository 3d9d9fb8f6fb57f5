"""Expert location metadata: which expert each slot holds when the engine starts."""

from __future__ import annotations

from pathlib import Path

from panel.server.location_file import COUNT, Rows, read_location
from panel.server.options import OptionError, Options
from panel.server.shape import ModelConfig

Table = tuple[tuple[int, ...], ...]
"""For each layer with experts the expert in each slot."""

TRIVIAL = "trivial"
_FLAG = "init-expert-location"


def initial_location(config: ModelConfig, options: Options) -> Table:
    """Return the slots' experts for each layer with experts, or raise `OptionError`.

    Files say for each layer, or for each layer with experts, the expert in each slot, or how often
    each expert was chosen: then experts go where that asks for them. See `location_file`.
    """
    slots = slot_count(config, options)
    if options.init_expert_location == TRIVIAL:
        experts = config.experts.routed
        return tuple(tuple(slot % experts for slot in range(slots)) for _ in config.expert_layers)
    path = Path(options.init_expert_location)
    try:
        kind, rows = read_location(path)
        if kind == COUNT:
            return _balanced(check_counts(rows, config), config, options)
        return check_table(rows, config, slots)
    except (OSError, ValueError) as error:
        raise OptionError(
            f"{_FLAG} {path}: does not fit model class {config.model_class}: {error}; "
            f"use {TRIVIAL} or a file made for this model and these flags"
        ) from None


def slot_count(config: ModelConfig, options: Options) -> int:
    """Return the slots of a layer: one for each expert, and the redundant ones."""
    return config.experts.routed + options.ep_num_redundant_experts


def check_table(rows: Rows, config: ModelConfig, slots: int) -> Table:
    """Return the rows of the layers with experts, or raise `ValueError` with what is wrong."""
    every = set(range(config.experts.routed))
    rows = _expert_layers(rows, config)
    for layer, row in zip(config.expert_layers, rows, strict=True):
        if len(row) != slots:
            raise ValueError(f"layer {layer} has {len(row)} slots, the flags ask for {slots}")
        if strange := set(row) - every:
            raise ValueError(f"layer {layer} names expert {min(strange)}; there are {len(every)}")
        if missing := every - set(row):
            raise ValueError(f"layer {layer} has no slot for expert {min(missing)}")
    return tuple(map(tuple, rows))


def check_counts(rows: Rows, config: ModelConfig) -> Rows:
    """Return the counts of the layers with experts, or raise `ValueError` with what is wrong."""
    experts = config.experts.routed
    rows = _expert_layers(rows, config)
    for layer, row in zip(config.expert_layers, rows, strict=True):
        if len(row) != experts:
            raise ValueError(f"layer {layer} counts {len(row)} experts; there are {experts}")
    return rows


def _expert_layers(rows: Rows, config: ModelConfig) -> Rows:
    layers = config.expert_layers
    if len(rows) == config.layers:
        return [rows[layer] for layer in layers]
    if len(rows) != len(layers):
        raise ValueError(
            f"it has {len(rows)} layers, the model {config.layers}, "
            f"of which {len(layers)} with experts"
        )
    return rows


def _balanced(load: Rows, config: ModelConfig, options: Options) -> Table:
    # Plans without such a file do not need numpy.
    from panel.server.eplb import balance

    return balance(
        load,
        slot_count(config, options),
        options.ep_size,
        groups=config.experts.routing.groups,
        domains=options.eplb_domains,
    )
