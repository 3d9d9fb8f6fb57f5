"""The engine on this machine's GPUs against itself on CPU ranks.

    python tools/gpu_check.py [--model moe-tiny] [--tokens 48] [--only NAME]

For one GPU and for all of them (and with expert parallelism) greedy text in float32 must equal the
text of CPU ranks up to the first near tie, sampled by the host and by the device, and once more
after experts have moved; then decode speed in bfloat16 is printed. On a single GPU two ranks share
it: their sums go through each other's memory, all else through the host. Before that NCCL's
collectives are captured in a group of one.
"""

from __future__ import annotations

import argparse
import os
import subprocess
import sys
import time
from dataclasses import dataclass
from pathlib import Path

import httpx
import torch

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from benchmarks.serving import NO_MULTICAST, engine

PROMPTS = (
    "The history of the world is",
    "The kernel is",
    "It was a dark and stormy night",
    "In order to install the package, you",
)
TIE = 1e-3
"""A lead of the best token over the second below which either may win (natural logarithm)."""
PROBE_SECONDS = 120.0
SIZES, SHORT = "--cuda-graph-max-bs=4", "--chunked-prefill-size=256"
NOT_CAPTURED = "not captured"


@dataclass(frozen=True)
class Text:
    """A greedy continuation."""

    tokens: list[str]
    leads: list[float]
    """Of each token over the second best."""


@dataclass(frozen=True)
class Case:
    """One way to run the engine."""

    name: str
    flags: tuple[str, ...]
    timed: bool = True
    captured: bool = True
    """Whether decode steps have to be graphs."""


def _complete(url: str, prompt: str, tokens: int, **more: object) -> dict[str, object]:
    body = {"prompt": prompt, "max_tokens": tokens, "temperature": 0, **more}
    answer = httpx.post(f"{url}/v1/completions", json=body, timeout=300)
    answer.raise_for_status()
    choice: dict[str, object] = answer.json()["choices"][0]
    return choice


def greedy(url: str, prompt: str, tokens: int) -> Text:
    """Return the continuation that the host finds: it needs to see the logits for their scores."""
    found = _complete(url, prompt, tokens, logprobs=2)["logprobs"]
    assert isinstance(found, dict)
    leads = [max(top.values()) - min(top.values()) for top in found["top_logprobs"]]
    return Text(found["tokens"], leads)


def compared(reference: Text, url: str, prompt: str, tokens: int) -> int | None:
    """Return how many tokens were compared and equal, None where host or device differ."""
    leads = reference.leads
    firm = next((at for at, lead in enumerate(leads) if lead < TIE), len(leads))
    wanted = reference.tokens[:firm]
    by_host = greedy(url, prompt, tokens).tokens[:firm]
    by_device = str(_complete(url, prompt, tokens)["text"])
    return firm if by_host == wanted and by_device.startswith("".join(wanted)) else None


def equal(reference: list[Text], url: str, tokens: int) -> list[int | None]:
    """Return what `compared` says of each prompt."""
    pairs = zip(PROMPTS, reference, strict=True)
    return [compared(expected, url, prompt, tokens) for prompt, expected in pairs]


def rate(url: str, tokens: int = 256) -> float:
    """Return tokens a second of one stream, by the difference of two lengths."""

    def seconds(count: int) -> float:
        began = time.perf_counter()
        _complete(url, PROMPTS[0], count, ignore_eos=True)
        return time.perf_counter() - began

    seconds(8)
    return (tokens - 1) / (seconds(tokens) - seconds(1))


def check(case: Case, model: str, reference: list[Text], tokens: int) -> bool:
    """Run a case; print a line and return whether all is well."""
    text = ""
    with engine((model, *case.flags, "--dtype=float32", SIZES)) as running:
        firm = equal(reference, running.url, tokens)
        if any("ep-size" in flag for flag in case.flags):
            moved = httpx.post(f"{running.url}/eplb/rebalance", timeout=60).json()["moved"]
            text = f"; {moved} experts moved"
            firm += equal(reference, running.url, tokens)
        captured = NOT_CAPTURED not in running.log.read_text()
    good = None not in firm and captured >= case.captured
    words = "differs" if None in firm else f"equal over {sum(n or 0 for n in firm)} tokens"
    text = f"float32 {words}, {'graphs' if captured else 'no graphs'}{text}"
    if case.timed:
        with engine((model, *case.flags)) as running:
            text += f"; bfloat16 {rate(running.url):.0f} tok/s, one stream"
    print(f"{'ok' if good else 'FAILED':6} {case.name:27} {text}", flush=True)
    return good


def cases(gpus: int) -> list[Case]:
    """Return what can be run on so many GPUs."""
    found = [Case("1 GPU", ("--tp-size=1", "--device=cuda"))]
    if gpus == 1:
        shared = ("--tp-size=2", "--device=cuda", "--allreduce-backend=peer", SHORT)
        split: tuple[str, ...] = (*shared, "--ep-size=2")
        sent = (*split, "--moe-a2a-backend=auto")
        owned = (*sent, "--dp-attention")
        found += [
            Case("TP2 on 1 GPU", shared, timed=False),
            Case("TP2 + EP2 on 1 GPU", split, timed=False),
            Case("EP2, all-to-all on 1 GPU", sent, timed=False, captured=False),
            Case("EP2, dp-attention on 1 GPU", owned, timed=False, captured=False),
        ]
    elif gpus > 1:
        every = (f"--tp-size={gpus}", "--device=cuda")
        split = (*every, f"--ep-size={gpus}")
        sent = (*split, "--moe-a2a-backend=auto")
        found += [
            Case(f"TP{gpus}", every),
            Case(f"TP{gpus} by NCCL", (*every, "--allreduce-backend=nccl")),
            Case(f"TP{gpus} + EP{gpus}", split),
            Case(f"EP{gpus}, all-to-all", sent),
            Case(f"EP{gpus}, dp-attention", (*sent, "--dp-attention")),
        ]
    return found


def probe_nccl() -> None:
    """Capture and replay NCCL's collectives in a group of one, beside its watchdog."""
    import torch.distributed as dist

    from panel.server.cuda.capture import capture
    from panel.server.cuda.spread import ByColumns, agree
    from panel.server.plan import Plan, Work

    torch.cuda.set_device(0)
    dist.init_process_group("nccl", store=dist.HashStore(), rank=0, world_size=1)
    x = torch.ones(1 << 16, device="cuda")
    gathered, spread = torch.empty_like(x), ByColumns(0, 1, 1 << 12)

    def step() -> torch.Tensor:
        dist.all_reduce(x)
        dist.all_gather_into_tensor(gathered, x * 2)
        dist.broadcast(gathered, 0)
        return gathered + 1

    def slowly() -> torch.Tensor:
        result = step()
        # The watchdog looks at earlier collectives meanwhile.
        time.sleep(2.5)
        return result

    step()
    graph, result = capture(slowly, None)
    for value in (3.0, 5.0):
        x.fill_(value)
        graph.replay()
        # Launched one by one between two replays, as sampling is.
        whole = spread.whole(result.view(-1, 1 << 12), Plan(Work.DECODE)).contiguous()
        agree(whole)
        if not whole.eq(2 * value + 1).all():
            sys.exit(f"replayed with {value} NCCL gave {whole.flatten()[:4].tolist()}")
    torch.cuda.synchronize()
    dist.destroy_process_group()


def check_nccl() -> bool:
    """Run the probe in a process of its own; print a line and return whether all is well."""
    words = [sys.executable, __file__, "--probe-nccl"]
    try:
        done = subprocess.run(words, capture_output=True, text=True, timeout=PROBE_SECONDS)
        good, why = done.returncode == 0, done.stderr[-3000:]
    except subprocess.TimeoutExpired:
        good, why = False, "it hangs"
    print(f"{'ok' if good else 'FAILED':6} NCCL in a graph, group of one {'' if good else why}")
    return good


def main() -> None:
    """Compare and print."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--model", default="moe-tiny")
    parser.add_argument("--tokens", type=int, default=48)
    parser.add_argument("--only", default="", help="cases whose name has this in it")
    parser.add_argument("--probe-nccl", action="store_true", help="only that; used by itself")
    args = parser.parse_args()
    os.environ |= NO_MULTICAST
    if args.probe_nccl:
        probe_nccl()
        return
    model = f"--model-path={args.model}"
    good = [check_nccl()]
    asked = [case for case in cases(torch.cuda.device_count()) if args.only in case.name]
    if not asked:
        sys.exit(not all(good))
    with engine((model, "--device=cpu", "--tp-size=2")) as running:
        reference = [greedy(running.url, prompt, args.tokens) for prompt in PROMPTS]
    for case in asked:
        try:
            good.append(check(case, model, reference, args.tokens))
        except (httpx.HTTPError, TimeoutError) as error:
            good.append(False)
            print(f"FAILED {case.name:27} {error}", flush=True)
    sys.exit(not all(good))


if __name__ == "__main__":
    main()
