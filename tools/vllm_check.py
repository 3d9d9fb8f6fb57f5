"""vLLM for real under the panel, on the GPUs of this host.

    python tools/vllm_check.py EVIDENCE [--python PYTHON] [--seconds 280] [--only serve-stop]

PYTHON is the interpreter that has vLLM. A small random checkpoint is served with one GPU and, where
there are two, with both: launch, figures, a completion, then a killed worker, a killed API server,
a stop, each with a launch of its own; --only takes some of these. Nothing may hold a GPU
afterwards. The folder EVIDENCE becomes the panel's home (profile, ledger, launches); a table is
printed. Exit code 1 where a step failed or time ran out.
"""

from __future__ import annotations

import sys
from typing import Any

from engine_check import Engine, run

from panel.domain.snapshot import LaunchView, ProcessView


def generate(launch: LaunchView, prompt: list[int], count: int) -> tuple[str, dict[str, Any]]:
    """Return the completion that is asked for."""
    return "/v1/completions", {
        "model": launch.flags["model"],
        "prompt": prompt,
        "max_tokens": count,
        "temperature": 0,
        "ignore_eos": True,
        "return_token_ids": True,
    }


def tokens(answer: dict[str, Any]) -> list[int]:
    """Return the tokens of the answer."""
    return list(answer["choices"][0]["token_ids"])


def server(launch: LaunchView) -> ProcessView:
    """Return the API server, which leaves EngineCore and workers to themselves when it dies."""
    return next(each for each in launch.processes if not each.title)


VLLM = Engine(
    name="vllm",
    environment={
        "VLLM_NO_USAGE_STATS": "1",
        "VLLM_USE_FLASHINFER_SAMPLER": "0",
        "VLLM_ALLREDUCE_USE_SYMM_MEM": "0",
    },
    flags={
        "max-model-len": "4096",
        "max-num-seqs": "64",
        "gpu-memory-utilization": "0.5",
        "enforce-eager": "true",
    },
    model_flag="model",
    both={"tensor-parallel-size": "2", "ep": "on"},
    ends=("kill-rank", "kill-server", "serve-stop"),
    exits=frozenset({0}),
    generate=generate,
    tokens=tokens,
    server=server,
)

if __name__ == "__main__":
    sys.exit(run(VLLM, __doc__))
