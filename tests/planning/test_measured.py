"""What a launch took beside what its plan said."""

from __future__ import annotations

import pytest

from panel.domain.plan import Fit, Measured, Memory
from panel.engines.logmemory import LogMemory
from panel.planning.measured import measured
from panel.widgets.words import taken

GIB = 1 << 30

LINES = {
    "sglang, latent cache": (
        "Load weight end. elapsed=9 s, type=X, avail mem=60.00 GB, mem usage=32.50 GB.",
        "KV Cache is allocated. dtype: torch.bfloat16, #tokens: 2000, KV size: 12.25 GB",
        "Capture target decode CUDA graph end. elapsed=2 s, mem usage=0.25 GB, avail mem=47 GB.",
        "Capture draft decode CUDA graph end. elapsed=2 s, mem usage=0.25 GB, avail mem=46 GB.",
        "max_total_num_tokens=2000, chunked_prefill_size=8192",
        # Of the draft model:
        "Load weight end. elapsed=1 s, type=Y, avail mem=40.00 GB, mem usage=1.50 GB.",
        "KV Cache is allocated. dtype: torch.bfloat16, #tokens: 2000, KV size: 0.50 GB",
    ),
    "sglang, heads": (
        "Load weight end. type=X, dtype=torch.bfloat16, avail mem=60.00 GB, mem usage=32.50 GB.",
        "KV Cache is allocated. #tokens: 2000, K size: 6.25 GB, V size: 6.00 GB",
        "Capture cuda graph end. Time elapsed: 5.1 s. mem usage=0.50 GB. avail mem=47.50 GB.",
        "max_total_num_tokens=2000, chunked_prefill_size=8192",
    ),
    "vllm": (
        "Model loading took 32.50 GiB and 4.000000 seconds",
        "Available KV cache memory: 12.25 GiB",
        "GPU KV cache size: 2,000 tokens",
        "Graph capturing finished in 3 secs, took 0.50 GiB",
    ),
    "vllm, older": (
        "Model loading took 32.50 GiB memory and 4.0 seconds",
        "Available KV cache memory: 12.25 GiB",
        "GPU KV cache size: 2,000 tokens",
        "Graph capturing finished in 3 secs, took 0.50 GiB",
    ),
}
TAKEN = {
    "weights": round(32.5 * GIB),
    "kv_cache": round(12.25 * GIB),
    "graphs": GIB // 2,
    "kv_tokens": 2000,
}


@pytest.mark.parametrize("lines", LINES.values(), ids=LINES)
def test_the_logs_tell_what_was_taken(lines: tuple[str, ...]) -> None:
    log = LogMemory()
    for line in lines:
        log.see(line, 3)
    log.see("Decode batch, #running-req: 1, #token: 128, token usage: 0.00", 3)
    log.see("the model of 12 GB is downloaded", 3)
    assert log.ranks == {3: TAKEN}


def test_parts_of_weights_are_summed_and_the_hungriest_rank_counts() -> None:
    plan = (
        Memory(category="context and NCCL", predicted=GIB),
        Memory(category="attention", predicted=10 * GIB),
        Memory(category="routed experts", predicted=20 * GIB),
        Memory(category="KV cache", predicted=12 * GIB),
        Memory(category="activations", predicted=GIB),
    )
    fit = Fit(total=96 * GIB, estimated=True, kv_tokens=2100, after_weights=0, left=0)
    ranks = {0: TAKEN, 1: TAKEN | {"weights": 33 * GIB, "kv_tokens": 1900}}
    assert measured(plan, fit, ranks) == (
        Measured(part="weights", predicted=30 * GIB, measured=33 * GIB),
        Measured(part="KV cache", predicted=12 * GIB, measured=round(12.25 * GIB)),
        Measured(part="graphs", predicted=None, measured=GIB // 2),
        Measured(part="KV tokens", predicted=2100, measured=1900, unit="tokens"),
    )
    assert measured(plan, fit, {}) == ()
    assert list(taken(measured(plan, fit, ranks))) == [
        "weights 33.0G (planned 30.0G)",
        "KV cache 12.2G (planned 12.0G)",
        "graphs 512M",
        "KV tokens 1.9k (planned 2.1k)",
    ]


def test_our_own_ranks_tell_by_category() -> None:
    plan = (
        Memory(category="weights", predicted=40),
        Memory(category="shared experts", predicted=10),
        Memory(category="workspace", predicted=7),
    )
    own = {"weights": 40, "shared_experts": 10, "workspace": 8, "kv_cache": 0, "other": 99}
    assert [
        (each.part, each.predicted, each.measured) for each in measured(plan, None, {0: own})
    ] == [
        ("weights", 50, 50),
        ("workspace", 7, 8),
    ]
