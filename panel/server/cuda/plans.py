"""How the experts' kernels are divided: as it was tuned on this kind of GPU, where it was.

`benchmarks/kernels_experts.py --keep` tunes and keeps; the engine only reads.
"""

from __future__ import annotations

import json
import logging
from pathlib import Path
from typing import Any

import triton

from panel.kernels.expert_plan import Plans, plans_for
from panel.kernels.experts import ExpertWeights
from panel.kernels.router import Routing
from panel.server.cuda.mixture import expert_layers, routing_of
from panel.server.figures import agreed, cache_file, facts_of, keep_figures, read_figures
from panel.server.model import Model
from panel.server.place import Place
from panel.server.shape import ModelConfig

log = logging.getLogger(__name__)

_WHAT = "plans of experts"


def plans_file() -> Path:
    """Return where tuned plans are kept."""
    return cache_file("experts.json")


def tuned_plans(place: Place, model: Model) -> Plans | None:
    """Return `kept_plans` where all ranks, which call this together, have found the same."""
    plans = agreed(place, kept_plans(model, place.config))
    if plans is not None:
        log.info("plans of the experts are those in %s", plans_file())
    return plans


def kept_plans(model: Model, config: ModelConfig) -> Plans | None:
    """Return the plans kept for a rank's share of the experts; None where there are none."""
    first = next((weights for weights in expert_layers(model) if weights is not None), None)
    return None if first is None else read_plans(plans_file(), first, routing_of(config.experts))


def read_plans(file: Path, weights: ExpertWeights, routing: Routing) -> Plans | None:
    """Return the plans kept for layers like `weights`; None where there are none."""
    dtype, device = weights.route.dtype, weights.route.device

    def parse(found: dict[str, Any]) -> Plans:
        return plans_for(dtype, device, Plans.from_json(found))

    return read_figures(file, plans_key(weights, routing), parse, _WHAT)


def keep_plans(file: Path, weights: ExpertWeights, routing: Routing, plans: Plans) -> None:
    """Keep plans for layers like `weights`, in place of those that were there."""
    keep_figures(file, plans_key(weights, routing), plans.to_json(), _WHAT)


def plans_key(weights: ExpertWeights, routing: Routing) -> str:
    """Return what the plans' speed depends on: the device, the compiler, a rank's share."""
    slots, columns, hidden = weights.down.shape
    facts = {
        "triton": triton.__version__,
        "type": str(weights.route.dtype),
        "hidden": hidden,
        "experts": f"{routing.experts} top {routing.chosen}",
        "held": f"{slots} of {columns}",
        "shared": weights.shared_down.shape[0],
    }
    return json.dumps(facts_of(weights.route.device) | facts)
