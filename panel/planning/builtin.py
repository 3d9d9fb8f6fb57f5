"""The memory of our own engine's ranks, by the engine's own arithmetic."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import NamedTuple

from panel.config.models import model_config
from panel.domain.flags import Profile
from panel.domain.plan import Fit, Memory
from panel.planning.memory import CONTEXT
from panel.server.config import ModelConfig, ModelError, model_folder, parse_config, read_config
from panel.server.draft.find import draft_shape
from panel.server.memory import Category, Demand
from panel.server.options import OptionError, resolve
from panel.server.parallel import shard_of
from panel.server.sizes import settled

_WIDTHS = {"float32": 4, "bfloat16": 2, "float16": 2}
_WORDS = {
    Category.WEIGHTS: "weights",
    Category.SHARED_EXPERTS: "shared experts",
    Category.WORKSPACE: "workspace",
    Category.DRAFT: "draft",
    Category.KV_CACHE: "KV cache",
    Category.GRAPHS: "graphs",
}


class Demanded(NamedTuple):
    """The memory of rank 0, and how it stands to a GPU where there is one."""

    lines: tuple[Memory, ...] = ()
    fit: Fit | None = None


def demand(profile: Profile, values: Mapping[str, str]) -> Demanded:
    """Return the memory of rank 0; nothing where the model cannot be read, which the rules tell.

    On a CPU, and where the profile names no GPUs, KV cache is what the flags can use.
    """
    options = resolve(dict(values))
    gpus = profile.hardware if options.device != "cpu" else None
    options = settled(options, on_gpu=gpus is not None)
    usual = "bfloat16" if gpus or options.device == "cuda" else "float32"
    width = _WIDTHS[usual if options.dtype == "auto" else options.dtype]
    try:
        config = _config(profile, options.model_path)
        draft = draft_shape(options, config, model_folder(options.model_path))
        needs = Demand(config, shard_of(options, 0), options, width, gpus is not None, draft)
        if gpus is None:
            return Demanded(_lines(needs.table()))
        fixed = sum(needs.table(room=0).values()) - needs.page
        after = gpus.memory - CONTEXT - fixed
        room = after - int(gpus.memory * (1 - options.mem_fraction_static))
        context = Memory(category="context and NCCL", predicted=CONTEXT, note="rule of thumb")
        lines = (context, *_lines(needs.table(max(room, 0))))
    except (ModelError, OptionError, ArithmeticError):
        return Demanded()
    fit = Fit(
        total=gpus.memory,
        estimated=False,
        kv_tokens=needs.pages(max(room, 0)) * options.page_size,
        after_weights=after,
        left=gpus.memory - sum(line.predicted for line in lines),
    )
    return Demanded(lines, fit)


def _config(profile: Profile, model_path: str) -> ModelConfig:
    """Return the shape from the checkpoint, else from the shipped config of the profile."""
    folder = model_folder(model_path)
    if profile.model and not (folder / "config.json").exists():
        raw: Mapping[str, object] = json.loads(model_config(profile.model).read_text())
        return parse_config(raw)
    return read_config(folder)


def _lines(table: Mapping[Category, int]) -> tuple[Memory, ...]:
    return tuple(
        Memory(category=_WORDS[category], predicted=size)
        for category, size in table.items()
        if size
    )
