"""A launch → what the engine will make of it, by rules, memory and hardware; one way an engine."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import NamedTuple

from panel.config.models import model_config
from panel.domain.errors import UsageError
from panel.domain.flags import Profile
from panel.domain.plan import Capability, Fit, Memory, Override, Problem
from panel.engines.base import Engine
from panel.engines.flagtable import FlagTable, load_table
from panel.planning.builtin import demand
from panel.planning.capabilities import asked_in_vain, capabilities
from panel.planning.fit import KNOBS, exchange_cost, fit_problems
from panel.planning.model import Model, read_model
from panel.planning.rules import RULES, SILENTS
from panel.planning.rules.builtin import check_rules
from panel.planning.rules.rule import judge, settle
from panel.planning.scene import Scene
from panel.planning.weights import Weights, weigh


class Forecast(NamedTuple):
    """What is known of a launch before it happens."""

    problems: tuple[Problem, ...] = ()
    overrides: tuple[Override, ...] = ()
    memory: tuple[Memory, ...] = ()
    fit: Fit | None = None
    capabilities: tuple[Capability, ...] = ()


def forecast(engine: Engine, profile: Profile, values: Mapping[str, str]) -> Forecast:
    """Return what becomes of `values`, which the engine has checked each for itself."""
    if engine.name not in RULES:
        needs = demand(profile, values)
        return Forecast(check_rules(values), memory=needs.lines, fit=needs.fit)
    version = engine.version() or profile.installation.version
    table = load_table(engine.name, version)
    model, weights, problems = _model(table, profile, values)
    names = table.settle(values)
    scene = Scene(
        engine=engine.name,
        version=table.version,
        values=names.values,
        env=profile.env,
        model=model,
        weights=weights,
        hardware=profile.hardware,
    )
    renames = tuple(Problem(severity="note", text=text) for text in names.notes)
    return _external(scene, engine.world_size(values), (*problems, *renames))


def _external(scene: Scene, ranks: int, known: tuple[Problem, ...]) -> Forecast:
    settled, overrides = settle(SILENTS[scene.engine], scene)
    problems = (*known, *judge(RULES[scene.engine], settled), *asked_in_vain(settled, ranks))
    paths = capabilities(settled, ranks)
    if scene.hardware is not None and ranks > scene.hardware.gpus * scene.count("nnodes"):
        text = f"{ranks} ranks, but {scene.hardware.gpus} GPUs"
        problems = (*problems, Problem(severity="refusal", text=text))
    if scene.weights is None or scene.hardware is None:
        return Forecast(problems, overrides, capabilities=paths)
    problems += (*exchange_cost(scene, settled), *fit_problems(scene, settled))
    budget = KNOBS[scene.engine].predict(settled)
    return Forecast(problems, overrides, budget.lines, budget.fit, paths)


def _model(
    table: FlagTable, profile: Profile, values: Mapping[str, str]
) -> tuple[Model | None, Weights | None, tuple[Problem, ...]]:
    """Return the model from its folder, else from the shipped config that the profile names."""
    flag = "model-path" if table.find("model-path") else "model"
    folder = Path(values.get(flag, ""))
    try:
        if folder.is_absolute() and (folder / "config.json").is_file():
            model = read_model(folder / "config.json", folder)
        elif profile.model:
            model = read_model(model_config(profile.model))
        else:
            raise UsageError(
                f"no memory plan: {flag} is no folder of this node",
                "name a shipped config as model in the profile",
            )
        return model, weigh(model), ()
    except UsageError as error:
        return None, None, (Problem(severity="note", text=str(error), flag=flag),)
