"""The engine on this machine's GPUs against itself on CPU ranks.

    python tools/gpu_check.py [--model moe-tiny] [--tokens 48]

For one GPU and for all of them (and with expert parallelism) greedy text in float32 must equal the
text of CPU ranks up to the first near tie; then decode speed in bfloat16 is printed.
"""

from __future__ import annotations

import argparse
import os
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass

import httpx
import torch

PROMPTS = (
    "The history of the world is",
    "The kernel is",
    "It was a dark and stormy night",
    "In order to install the package, you",
)
TIE = 1e-3
"""A lead of the best token over the second below which either may win (natural logarithm)."""

Text = list[tuple[str, float]]


@dataclass(frozen=True)
class Case:
    """One way to run the engine."""

    name: str
    flags: tuple[str, ...]


@contextmanager
def engine(flags: tuple[str, ...]) -> Iterator[str]:
    """Run the engine alone with these flags; yield the address of its API."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    code = "import sys; from panel.server.standalone import main; sys.exit(main(sys.argv[1:]))"
    process = subprocess.Popen([sys.executable, "-c", code, f"--port={port}", *flags])
    try:
        url = f"http://127.0.0.1:{port}"
        _wait_ready(process, url, 180.0)
        yield url
    finally:
        process.send_signal(signal.SIGTERM)
        process.wait(60)


def _wait_ready(process: subprocess.Popen[bytes], url: str, seconds: float) -> None:
    deadline = time.monotonic() + seconds
    while time.monotonic() < deadline:
        if process.poll() is not None:
            sys.exit(f"the engine ended with {process.returncode}")
        try:
            if httpx.get(f"{url}/ready", timeout=5).status_code == 200:
                return
        except httpx.HTTPError:
            pass
        time.sleep(0.1)
    sys.exit("the engine was not ready in time")


def greedy(url: str, prompt: str, tokens: int) -> Text:
    """Return the greedy continuation's tokens, each with its lead over the second best."""
    body = {"prompt": prompt, "max_tokens": tokens, "temperature": 0, "logprobs": 2}
    answer = httpx.post(f"{url}/v1/completions", json=body, timeout=300)
    answer.raise_for_status()
    found = answer.json()["choices"][0]["logprobs"]
    leads = [max(top.values()) - min(top.values()) for top in found["top_logprobs"]]
    return list(zip(found["tokens"], leads, strict=True))


def compared(reference: Text, text: Text) -> int | None:
    """Return how many tokens were compared and equal, None where they differ."""
    firm = next((at for at, (_, lead) in enumerate(reference) if lead < TIE), len(reference))
    same = [token for token, _ in reference[:firm]] == [token for token, _ in text[:firm]]
    return firm if same else None


def rate(url: str, tokens: int = 256) -> float:
    """Return tokens a second of one stream, by the difference of two lengths."""

    def seconds(count: int) -> float:
        began = time.perf_counter()
        body = {"prompt": PROMPTS[0], "max_tokens": count, "temperature": 0, "ignore_eos": True}
        httpx.post(f"{url}/v1/completions", json=body, timeout=300).raise_for_status()
        return time.perf_counter() - began

    seconds(8)
    return (tokens - 1) / (seconds(tokens) - seconds(1))


def main() -> None:
    """Compare and print."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--model", default="moe-tiny")
    parser.add_argument("--tokens", type=int, default=48)
    args = parser.parse_args()
    # Multicast objects of a process that dies badly can put a host's GPUs out of service.
    os.environ |= {
        "NCCL_NVLS_ENABLE": "0",
        "TORCH_SYMM_MEM_DISABLE_MULTICAST": "1",
        "NVSHMEM_DISABLE_NVLS": "1",
    }
    model = f"--model-path={args.model}"
    gpus = torch.cuda.device_count()
    cases = [Case("1 GPU", ("--tp-size=1", "--device=cuda"))]
    if gpus > 1:
        every = (f"--tp-size={gpus}", "--device=cuda")
        cases += [
            Case(f"TP{gpus}", every),
            Case(f"TP{gpus} + EP{gpus}", (*every, f"--ep-size={gpus}")),
        ]
    with engine((model, "--device=cpu", "--tp-size=2")) as url:
        reference = [greedy(url, prompt, args.tokens) for prompt in PROMPTS]
    bad = 0
    for case in cases:
        with engine((model, *case.flags, "--dtype=float32")) as url:
            firm = [
                compared(expected, greedy(url, prompt, args.tokens))
                for prompt, expected in zip(PROMPTS, reference, strict=True)
            ]
        bad += firm.count(None)
        with engine((model, *case.flags)) as url:
            speed = rate(url)
        equal = "differs" if None in firm else f"equal over {sum(n or 0 for n in firm)} tokens"
        print(f"{case.name:14} float32 {equal}; bfloat16 {speed:.0f} tok/s, one stream", flush=True)
    sys.exit(bad > 0)


if __name__ == "__main__":
    main()
