"""What the memory table means: whether it fits, what an option costs, the smallest way out."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator
from typing import NamedTuple

from panel.domain.plan import Problem
from panel.planning import memory_sglang, memory_vllm
from panel.planning.memory import Budget
from panel.planning.rules import SILENTS
from panel.planning.rules.rule import settle
from panel.planning.scene import GIB, Scene
from panel.planning.sglang import a2a
from panel.planning.weights import Part

Predict = Callable[[Scene], Budget]
Flags = dict[str, str]

_MOST_SHARE = 0.97


class Knobs(NamedTuple):
    """What can be turned where memory is short; each step is small against the next one."""

    predict: Predict
    share: str
    """The flag for the share of a GPU that the engine takes."""
    context: str
    """The flag for the longest request."""
    one_must_fit: bool
    """Whether the engine refuses to start where the longest request has no room."""
    steps: Callable[[Scene], Iterator[Flags]]


def predict(requested: Scene) -> Budget:
    """Return the memory of a rank for flags as they are asked for."""
    settled = settle(SILENTS[requested.engine], requested).scene
    return KNOBS[requested.engine].predict(settled)


def fit_problems(requested: Scene, settled: Scene) -> tuple[Problem, ...]:
    """Return what the memory of a launch means for it."""
    budget = KNOBS[settled.engine].predict(settled)
    if budget.short:
        return (_too_large(requested, settled, budget),)
    short_cache = _short_cache(settled, budget.fit.kv_tokens)
    if budget.fit.left < 0:
        return (*short_cache, _too_tight(requested, settled, budget))
    return short_cache


def exchange_cost(requested: Scene, settled: Scene) -> tuple[Problem, ...]:
    """Return what SGLang's all-to-all takes of each GPU, by its two parts."""
    if settled.engine != "sglang" or a2a(settled) == "none":
        return ()
    budget = predict(requested)
    without = predict(requested.with_values({"moe-a2a-backend": "none"}))
    shared = budget.of(Part.SHARED) - without.of(Part.SHARED)
    workspace = budget.of(memory_sglang.WORKSPACE)
    if shared + workspace <= 0:
        return ()
    text = (
        f"a2a {a2a(settled)} takes {_gib(shared + workspace, 2)} more of each GPU than none:"
        f" {_gib(shared, 2)} because each rank holds the shared experts whole,"
        f" {_gib(workspace, 3)} for its workspace"
    )
    remedy = {"moe-a2a-backend": "none"}
    return (Problem(severity="warning", text=text, flag="moe-a2a-backend", remedy=remedy),)


def _short_cache(settled: Scene, tokens: int) -> tuple[Problem, ...]:
    assert settled.model is not None
    knobs = KNOBS[settled.engine]
    longest = settled.number(knobs.context, settled.model.shape.max_context)
    if tokens >= longest:
        return ()
    return (
        Problem(
            severity="refusal" if knobs.one_must_fit else "note",
            text=f"KV cache holds {tokens} tokens, less than one request of {longest}",
            flag=knobs.context,
            remedy={knobs.context: str(tokens)},
        ),
    )


def _too_large(requested: Scene, settled: Scene, budget: Budget) -> Problem:
    knobs = KNOBS[settled.engine]
    change = _smallest(requested, knobs, float(settled.text(knobs.share)))
    text = f"does not fit: short by {_gib(budget.short, 1)} for the first page of KV cache"
    if change is None:
        text += "; no flag mends it: take GPUs with more memory, or a smaller quantisation"
    else:
        words = ", ".join(f"{name} {value}" for name, value in change.items())
        text += f"; smallest change that fits: {words}"
    return Problem(severity="refusal", text=text, flag=knobs.share, remedy=change or {})


def _too_tight(requested: Scene, settled: Scene, budget: Budget) -> Problem:
    knobs = KNOBS[settled.engine]
    now = float(settled.text(knobs.share))
    lower = (_share(now - step / 100) for step in range(1, 30))
    fitting = (text for text in lower if _fits(predict(requested.with_values({knobs.share: text}))))
    remedy = {knobs.share: text} if (text := next(fitting, None)) else {}
    way_out = f"; lower {knobs.share} to {text}" if text else ""
    return Problem(
        severity="warning",
        text=f"little room beside the KV cache: short by {_gib(-budget.fit.left, 1)} for graphs and"
        f" long prompts, which may run out of memory{way_out}",
        flag=knobs.share,
        remedy=remedy,
    )


def _smallest(requested: Scene, knobs: Knobs, share: float) -> Flags | None:
    """Return the first change that fits: a larger share, then steps, then both together."""
    shares: list[Flags] = [
        {knobs.share: _share(share + step / 100)}
        for step in range(1, 100)
        if share + step / 100 <= _MOST_SHARE
    ]
    steps = list(knobs.steps(requested))
    both = (step | more for step in steps for more in shares)
    for change in itertools.chain(shares, steps, both):
        if _fits(predict(requested.with_values(change))):
            return change
    return None


def _fits(budget: Budget) -> bool:
    return not budget.short and budget.fit.left >= 0


def _sglang_steps(scene: Scene) -> Iterator[Flags]:
    if scene.text("moe-a2a-backend", "none") != "none":
        yield {"moe-a2a-backend": "none"}
    if scene.number("chunked-prefill-size", 8192) > 2048:
        yield {"chunked-prefill-size": "2048"}
    yield from _wider(scene, "tp-size")


def _vllm_steps(scene: Scene) -> Iterator[Flags]:
    if scene.number("max-num-batched-tokens", 8192) > 2048:
        yield {"max-num-batched-tokens": "2048"}
    yield from _wider(scene, "tensor-parallel-size")


def _wider(scene: Scene, flag: str) -> Iterator[Flags]:
    ranks = scene.number(flag, 1) * 2
    while scene.hardware and ranks <= scene.hardware.gpus:
        yield {flag: str(ranks)}
        ranks *= 2


def _share(value: float) -> str:
    return f"{value:.2f}"


def _gib(size: int, digits: int) -> str:
    return f"{size / GIB:.{digits}f} GiB"


KNOBS: dict[str, Knobs] = {
    "sglang": Knobs(
        memory_sglang.predict, "mem-fraction-static", "context-length", False, _sglang_steps
    ),
    "vllm": Knobs(
        memory_vllm.predict, "gpu-memory-utilization", "max-model-len", True, _vllm_steps
    ),
}
