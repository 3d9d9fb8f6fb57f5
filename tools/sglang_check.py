"""SGLang for real under the panel, on the GPUs of this host.

    python tools/sglang_check.py EVIDENCE [--python PYTHON] [--seconds 280] [--only kill-rank]

PYTHON is the interpreter that has SGLang. A small random checkpoint is served with one GPU and,
where there are two, with both: launch, figures, a completion, then a killed scheduler, a stop, each
with a launch of its own; --only takes some of these. Nothing may hold a GPU afterwards. The folder
EVIDENCE becomes the panel's home (profile, ledger, launches); a table is printed. Exit code 1 where
a step failed or time ran out.

Attention, sampling and experts are those of Triton and PyTorch: what is looked at is the panel.
"""

from __future__ import annotations

import signal
import sys
from typing import Any

from engine_check import Engine, run

from panel.domain.snapshot import LaunchView, ProcessView


def generate(_: LaunchView, prompt: list[int], count: int) -> tuple[str, dict[str, Any]]:
    """Return the completion that is asked for."""
    wish = {"max_new_tokens": count, "temperature": 0, "ignore_eos": True}
    return "/generate", {"input_ids": prompt, "sampling_params": wish}


def tokens(answer: dict[str, Any]) -> list[int]:
    """Return the tokens of the answer."""
    return list(answer["output_ids"])


def server(launch: LaunchView) -> ProcessView:
    """Return the launcher, which has the API."""
    return next(each for each in launch.processes if each.rank is None)


SGLANG = Engine(
    name="sglang",
    # Kernels compiled for speed alone only delay a first launch: the panel is what is looked at.
    environment={"SGLANG_ENABLE_JIT_DEEPGEMM": "0", "TORCH_COMPILE_DISABLE": "1"},
    flags={
        "context-length": "4096",
        "max-running-requests": "64",
        "mem-fraction-static": "0.5",
        "attention-backend": "triton",
        "sampling-backend": "pytorch",
        "moe-runner-backend": "triton",
        "grammar-backend": "none",
        "disable-cuda-graph": "true",
        "disable-piecewise-cuda-graph": "true",
    },
    model_flag="model-path",
    both={"tp-size": "2", "ep": "on"},
    ends=("kill-rank", "serve-stop"),
    exits=frozenset({0, -signal.SIGKILL}),
    generate=generate,
    tokens=tokens,
    server=server,
)

if __name__ == "__main__":
    sys.exit(run(SGLANG, __doc__))
