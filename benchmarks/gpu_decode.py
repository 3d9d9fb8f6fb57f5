"""Milliseconds a decode step on GPUs, by batch size, through the engine's API.

    python benchmarks/gpu_decode.py CHECKPOINT [--tp N] [--ep N] [--batch 1 8 32 128] [--prefill]
                                    [--json FILE] [--log FILE] [FLAG ...]

CHECKPOINT is a folder, such as one of tools/random_checkpoint.py. One request carries a batch of
prompts of 128 random tokens and asks for 257 each at temperature 1, without an end: a step takes
(time of 257 tokens - time of 1) / 256, median of three. `--prefill` adds 8 prompts of 2048 tokens.
Other flags go to the engine. Beside it stand what vLLM 0.24 and SGLang 0.5.15 took on an H200 for
DeepSeek-V2-Lite's shape, and what reading the weights alone takes.
"""

from __future__ import annotations

import argparse
import json
import os
import random
import sys
import time
from pathlib import Path
from statistics import median

import httpx

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from benchmarks.serving import NO_MULTICAST, engine

PROMPT, ANSWER, REPEATS = 128, 257, 3
PEERS = {
    (1, 1): {"vLLM": (3.52, 6.84, 9.84, 11.26), "SGLang": (3.62, 7.14, 10.40, 14.79)},
    (2, 1): {"vLLM": (3.39, 5.26, 6.90, 8.09), "SGLang": (3.35, 5.05, 6.89, 9.89)},
    (2, 2): {"vLLM": (3.83, 5.55, 7.23, 8.19), "SGLang": (3.67, 5.40, 7.34, 10.25)},
}
FLOOR = (1.14, 4.3, 7.0, 7.3)
BATCHES = (1, 8, 32, 128)


def seconds(
    url: str,
    batch: int,
    prompt: int,
    answer: int,
    numbers: random.Random,
    vocabulary: int = 100_000,
) -> float:
    """Return how long a request with `batch` prompts takes."""
    prompts = [[numbers.randrange(5, vocabulary) for _ in range(prompt)] for _ in range(batch)]
    body = {"prompt": prompts, "max_tokens": answer, "temperature": 1, "ignore_eos": True}
    began = time.perf_counter()
    reply = httpx.post(f"{url}/v1/completions", json=body, timeout=300)
    took = time.perf_counter() - began
    reply.raise_for_status()
    assert reply.json()["usage"]["completion_tokens"] == batch * answer
    return took


def step_ms(
    url: str,
    batch: int,
    numbers: random.Random,
    *,
    answer: int = ANSWER,
    repeats: int = REPEATS,
    vocabulary: int = 100_000,
) -> float:
    """Return milliseconds a decode step."""

    def took(tokens: int) -> float:
        return seconds(url, batch, PROMPT, tokens, numbers, vocabulary)

    took(8)
    steps = []
    for _ in range(repeats):
        short = took(1)
        steps.append((took(answer) - short) / (answer - 1))
    return median(steps) * 1e3


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("checkpoint")
    parser.add_argument("--tp", type=int, default=1)
    parser.add_argument("--ep", type=int, default=1)
    parser.add_argument("--batch", type=int, nargs="*", default=list(BATCHES))
    parser.add_argument("--prefill", action="store_true")
    parser.add_argument("--log", type=Path, default=Path("gpu_decode.log"))
    parser.add_argument("--json", type=Path)
    args, flags = parser.parse_known_args()
    os.environ |= NO_MULTICAST
    flags = [flag for flag in flags if flag != "--"]
    flags += [f"--tp-size={args.tp}", f"--ep-size={args.ep}", "--device=cuda"]
    flags += ["--context-length=4096", "--disable-prefix-cache", "--max-running-requests=128"]
    numbers = random.Random(0)
    found: dict[str, object] = {"tp": args.tp, "ep": args.ep}
    with engine([f"--model-path={args.checkpoint}", *flags], args.log) as running:
        found["ready_s"] = round(running.ready, 1)
        print(f"TP{args.tp} EP{args.ep}: ready after {running.ready:.1f} s", flush=True)
        peers = PEERS.get((args.tp, args.ep), {})
        print("batch  ms a step  tok/s   " + "  ".join(f"{name:>7}" for name in [*peers, "floor"]))
        for batch in args.batch:
            ms = step_ms(running.url, batch, numbers)
            found[f"ms_{batch}"] = round(ms, 3)
            beside = [*peers.values(), FLOOR] if batch in BATCHES else []
            known = "  ".join(f"{row[BATCHES.index(batch)]:7.2f}" for row in beside)
            print(f"{batch:5}  {ms:9.3f}  {batch / ms * 1e3:6.0f}  {known}", flush=True)
        if args.prefill:
            best = min(seconds(running.url, 8, 2048, 1, numbers) for _ in range(4))
            found["prefill_tok_s"] = round(8 * 2048 / best)
            print(f"prefill 8 x 2048: {best:.3f} s, {8 * 2048 / best:,.0f} tok/s", flush=True)
    if args.json:
        args.json.write_text(json.dumps(found))


if __name__ == "__main__":
    main()
