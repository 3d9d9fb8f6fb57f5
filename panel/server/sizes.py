"""Bounds of a step and of a sequence that follow from the flags."""

from __future__ import annotations

from dataclasses import replace

from panel.server.options import Options
from panel.server.shape import ModelConfig

_HOST_CHUNK, _GPU_CHUNK = 512, 8192

_USUAL_STEPS = {"off": 0, "ngram": 4, "eagle3": 3}


def settled(options: Options, *, on_gpu: bool) -> Options:
    """Return the options with the sizes that the kind of device decides."""
    if options.chunked_prefill_size:
        return options
    return replace(options, chunked_prefill_size=_GPU_CHUNK if on_gpu else _HOST_CHUNK)


def draft_tokens(options: Options) -> int:
    """Return the most tokens guessed for one sequence in a step."""
    if options.speculative_num_steps is not None and options.speculative_algorithm != "off":
        return options.speculative_num_steps
    return _USUAL_STEPS[options.speculative_algorithm]


def simulated_rate(options: Options) -> float | None:
    """Return the acceptance that the flags ask to simulate, None for a real one."""
    if options.speculative_algorithm == "off":
        return None
    return options.speculative_simulate_acceptance


def logit_rows(options: Options) -> int:
    """Return the most rows of logits in one step."""
    return options.max_running_requests * (1 + draft_tokens(options))


def step_rows(options: Options) -> int:
    """Return the most rows of one step."""
    return options.chunked_prefill_size + logit_rows(options)


def max_context(options: Options, config: ModelConfig) -> int:
    """Return the most tokens of a sequence that flags and model allow."""
    return min(options.context_length or config.max_context, config.max_context)
