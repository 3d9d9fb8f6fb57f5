"""What other engines count, under their own names."""

from __future__ import annotations

import pytest

from panel.engines import find_engine
from panel.probes.hang.suspect import NO_TOKEN_S, suspect_stall
from panel.supervisor.watch.metrics import MetricsHistory, parse

VLLM = """
# HELP vllm:num_requests_running Number of requests.
vllm:num_requests_running{{engine="0"}} {running}
vllm:num_requests_running{{engine="1"}} 1.0
vllm:num_requests_waiting{{engine="0"}} 5.0
vllm:kv_cache_usage_perc{{engine="0"}} 0.5
vllm:cache_config_info{{block_size="16",cache_dtype="auto",num_gpu_blocks="1000"}} 1.0
vllm:generation_tokens_total{{engine="0"}} {tokens}
vllm:spec_decode_num_drafts_total {drafts}
vllm:spec_decode_num_accepted_tokens_total {accepted}
vllm:time_to_first_token_seconds_bucket{{le="0.1"}} {tokens}
vllm:time_to_first_token_seconds_bucket{{le="+Inf"}} {tokens}
"""


def vllm(tokens: int, running: float = 2.0) -> str:
    return VLLM.format(running=running, tokens=tokens, drafts=tokens // 3, accepted=tokens // 2)


def test_vllm_counts_and_the_panel_divides() -> None:
    history = MetricsHistory(find_engine("vllm").metric_names)
    history.add(10.0, parse(vllm(600)))
    history.add(12.0, parse(vllm(900)))
    metrics = history.metrics()

    assert metrics is not None
    assert (metrics.tok_s, metrics.running, metrics.waiting) == (150.0, 3, 5)
    assert (metrics.kv_used, metrics.kv_total) == (8000, 16000)
    assert metrics.acceptance == 2.5
    assert metrics.ttft_ms == 50.0


def test_sglang_measures_itself() -> None:
    text = """
sglang:num_running_reqs{tp_rank="0"} 4.0
sglang:num_queue_reqs{tp_rank="0"} 1.0
sglang:num_used_tokens{tp_rank="0"} 30.0
sglang:max_total_num_tokens{tp_rank="0"} 90.0
sglang:gen_throughput{tp_rank="0"} 89.5
sglang:spec_accept_length{tp_rank="0"} 2.51
sglang:generation_tokens_total 7.0
"""
    history = MetricsHistory(find_engine("sglang").metric_names)
    history.add(1.0, parse(text))
    history.add(2.0, parse(text))
    metrics = history.metrics()
    assert metrics is not None
    assert (metrics.tok_s, metrics.acceptance) == (89.5, 2.51)
    assert (metrics.running, metrics.waiting, metrics.kv_used, metrics.kv_total) == (4, 1, 30, 90)


def test_a_stall_is_requests_without_tokens() -> None:
    history = MetricsHistory(find_engine("vllm").metric_names)
    assert history.stalled(5.0) == 0.0
    history.add(10.0, parse(vllm(600)))
    history.add(20.0, parse(vllm(600)))
    assert history.stalled(25.0) == 15.0
    history.add(30.0, parse(vllm(601)))
    assert history.stalled(31.0) == 1.0
    idle = vllm(601, running=0.0).replace('{engine="1"} 1.0', '{engine="1"} 0.0')
    history.add(90.0, parse(idle))
    assert history.stalled(91.0) == 1.0


@pytest.mark.parametrize(("seconds", "suspected"), [(NO_TOKEN_S - 1, False), (NO_TOKEN_S, True)])
def test_a_stall_is_suspected_with_all_ranks(seconds: float, suspected: bool) -> None:
    found = suspect_stall(seconds, [0, 1], 100.0)
    assert (found is not None) is suspected
    if found is not None:
        assert (found.since, found.ranks) == (100.0 - seconds, (0, 1))
        assert "no token came for 30 s" in found.text
