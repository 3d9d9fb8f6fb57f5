"""Qwen3-MoE on this machine's GPU against CPU ranks: `qwen_check.py [--tokens 48] [--seconds 60]`.

A small random checkpoint (0.1 GB) with heads of the real width. Greedy text in float32 must equal
that of two CPU ranks up to the first near tie, sampled by the host and by the device. Most of the
time goes into compiling kernels.
"""

from __future__ import annotations

import argparse
import json
import shutil
import signal
import sys
import tempfile
from pathlib import Path

from gpu_check import PROMPTS, Case, check, engine, greedy
from random_checkpoint import MODELS, write

TOKENIZER = Path(__file__).parents[1] / "panel/server/models/moe-tiny/tokenizer.json"
SMALL = {
    "hidden_size": 1024,
    "max_position_embeddings": 4096,
    "moe_intermediate_size": 256,
    "num_attention_heads": 16,
    "num_experts": 16,
    "num_hidden_layers": 3,
    "vocab_size": 4096,
}


def too_long(*_: object) -> None:
    """End the engine, then the program."""
    raise TimeoutError("out of time")


def main() -> None:
    """Compare and print."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--tokens", type=int, default=48)
    parser.add_argument("--seconds", type=int, default=60)
    parser.add_argument("--device", default="cuda")
    args = parser.parse_args()
    signal.signal(signal.SIGALRM, too_long)
    signal.alarm(args.seconds)
    config = json.loads((MODELS / "qwen3-30b-a3b.json").read_text()) | SMALL
    try:
        good = agrees(config, args.device, args.tokens)
    except TimeoutError as error:
        good = False
        print(f"FAILED Qwen3-MoE: {error}")
    sys.exit(not good)


def agrees(config: dict[str, object], device: str, tokens: int) -> bool:
    """Run the model on both; print a line and return whether all is well."""
    with tempfile.TemporaryDirectory() as folder:
        write(config, Path(folder))
        shutil.copy(TOKENIZER, folder)
        model = f"--model-path={folder}"
        with engine((model, "--device=cpu", "--tp-size=2")) as running:
            reference = [greedy(running.url, prompt, tokens) for prompt in PROMPTS]
        flags = ("--tp-size=1", f"--device={device}")
        return check(Case(f"Qwen3-MoE, {device}", flags, timed=False), model, reference, tokens)


if __name__ == "__main__":
    main()
