"""Probes, server information and metrics."""

from __future__ import annotations

import asyncio
from collections.abc import Callable

import pytest
from prometheus_client.parser import text_string_to_metric_families

from panel import __version__
from panel.server.frontend.readiness import describe, rank_states
from panel.server.heartbeat import Beat
from panel.server.messages import Flush, Flushed, Generate, Step, Tokens
from panel.server.phases import Phase
from tests.frontend.front_under_test import Front
from tests.frontend.scripted_engine import STATS, reply, until


async def samples(front: Front) -> dict[str, float]:
    """Every sample of `/metrics`, its labels in the name."""
    text = (await front.client.get("/metrics")).text
    return {
        sample.name + "".join(f"/{value}" for value in sample.labels.values()): sample.value
        for family in text_string_to_metric_families(text)
        for sample in family.samples
    }


async def test_health_answers_before_the_ranks_serve(starting: Front) -> None:
    assert (await starting.client.get("/health")).status_code == 200


async def test_ready_only_while_every_rank_serves(front: Front) -> None:
    answer = await front.client.get("/ready")
    assert (answer.status_code, answer.json()) == (
        200,
        {"ready": True, "reason": None, "late": []},
    )
    front.heartbeats.beat(1, Phase.CAPTURE, step=0, done=2, total=5)
    answer = await front.client.get("/ready")
    body = answer.json()
    assert (answer.status_code, body["ready"]) == (503, False)
    assert body["reason"] == "capture: rank 1"
    assert [(late["rank"], late["phase"], late["done"]) for late in body["late"]] == [
        (1, "capture", 2)
    ]


async def test_ready_waits_for_rank_0_to_say_so(starting: Front) -> None:
    starting.beat()
    answer = await starting.client.get("/ready")
    assert answer.status_code == 503
    assert "starting" in answer.json()["reason"]


async def test_not_ready_while_draining(front: Front) -> None:
    front.link.drain(60)
    answer = await front.client.get("/ready")
    assert (answer.status_code, answer.json()["reason"]) == (503, "the engine is shutting down")


def test_late_ranks_are_grouped_by_what_they_do() -> None:
    now = 100_000_000_000

    def beat(phase: Phase, seconds_ago: float) -> Beat:
        return Beat(now - int(seconds_ago * 1e9), 5, phase, 1, 0, 0, 0)

    unborn = Beat(0, 0, Phase.ARGS, 0, 0, 0, 0)
    beats = [
        beat(Phase.SERVING, 0.1),
        beat(Phase.WEIGHTS, 0.1),
        beat(Phase.SERVING, 4.0),
        beat(Phase.WEIGHTS, 2.9),
        unborn,
    ]
    states = rank_states(beats, now)
    assert [state.late for state in states] == [False, True, True, True, True]
    assert describe(states) == (
        "weights: ranks 1 3; silent for 4.0 s in serving: rank 2; not started: rank 4"
    )


async def test_server_info(front: Front) -> None:
    front.engine.say(STATS)
    await until(lambda: front.link.stats is not None)
    body = (await front.client.get("/server_info")).json()
    assert body["version"] == __version__
    assert body["options"]["tp_size"] == 2
    assert body["options"]["api_key"] is None
    assert body["started"]["buckets"] == [1, 2, 4]
    assert body["stats"]["running"] == 3
    assert [rank["phase"] for rank in body["ranks"]] == ["serving", "serving"]


class TestSecrets:
    @pytest.fixture
    def flags(self) -> dict[str, str]:
        return {"api-key": "s3cret-key"}

    async def test_server_info_says_that_there_is_a_key(self, front: Front) -> None:
        body = (await front.client.get("/server_info")).json()
        assert body["options"]["api_key"] == "***"


async def test_metrics_repeat_what_rank_0_counted(front: Front) -> None:
    assert "moepanel_requests_running" not in await samples(front)
    front.engine.say(STATS)
    await until(lambda: front.link.stats is not None)
    values = await samples(front)
    expected = {
        "moepanel_requests_running": 3,
        "moepanel_requests_waiting": 1,
        "moepanel_kv_used_tokens": 100,
        "moepanel_kv_capacity_tokens": 4096,
        "moepanel_step_seconds": 0.005,
        "moepanel_kv_cached_tokens": 64,
        "moepanel_prefix_cache_hit_rate": 0.25,
        "moepanel_cached_prompt_tokens_total": 50,
        "moepanel_prefill_steps_total": 9,
        "moepanel_decode_steps_total/1": 30,
        "moepanel_decode_steps_total/4": 11,
        "moepanel_steps_total": 50,
        "moepanel_prompt_tokens_total": 200,
        "moepanel_generation_tokens_total": 40,
        "moepanel_preemptions_total": 2,
        "moepanel_spec_drafts_total": 10,
        "moepanel_spec_draft_tokens_total": 30,
        "moepanel_spec_accepted_tokens_total": 12,
        "moepanel_spec_cycles_total": 8,
        "moepanel_spec_foreseen_cycles_total": 6,
        "moepanel_spec_accepted_tokens_per_position_total/0": 7,
        "moepanel_spec_accepted_tokens_per_position_total/2": 1,
    }
    assert {name: values[name] for name in expected} == expected


async def test_metrics_time_what_passes_here(
    front: Front, tokens_of: Callable[[str], list[int]]
) -> None:
    front.engine.answer = lambda request: [
        Tokens(request.rid, [7], queued=0.25),
        Tokens(request.rid, [7, 8, 9]),
        Tokens(request.rid, [], finish="length"),
    ]
    await front.client.post("/v1/completions", json={"prompt": "a", "n": 2})
    values = await samples(front)
    assert values["moepanel_time_to_first_token_seconds_count"] == 2
    assert values["moepanel_inter_token_latency_seconds_count"] == 6
    assert values["moepanel_e2e_request_latency_seconds_count"] == 2
    assert values["moepanel_request_queue_time_seconds_sum"] == 0.5
    assert values["moepanel_requests_total/length"] == 2


async def test_metrics_count_how_requests_end(
    front: Front, tokens_of: Callable[[str], list[int]]
) -> None:
    async def complete() -> None:
        await front.client.post("/v1/completions", json={"prompt": "a", "stop": "x"})

    front.engine.answer = reply(tokens_of("fox and"))
    await complete()
    front.engine.answer = lambda request: [Tokens(request.rid, [], finish="error")]
    await complete()
    front.engine.answer = None
    running = asyncio.create_task(complete())
    request = await front.engine.expect(Generate, 3)
    await front.client.post("/abort_request", json={"abort_all": True})
    await running
    front.engine.say(Step([Tokens(request.rid, [7], finish="stop")]))
    values = await samples(front)
    ends = {
        finish: values[f"moepanel_requests_total/{finish}"] for finish in ("stop", "error", "abort")
    }
    assert ends == {"stop": 1, "error": 1, "abort": 1}


@pytest.mark.parametrize("body", [{}, {"rid": "x", "abort_all": True}, {"abort_all": False}])
async def test_abort_wants_one_thing(front: Front, body: dict[str, object]) -> None:
    assert (await front.client.post("/abort_request", json=body)).status_code == 400


async def test_aborting_what_does_not_run_ends_nothing(front: Front) -> None:
    answer = await front.client.post("/abort_request", json={"rid": "nobody"})
    assert answer.json() == {"aborted": 0}


async def test_flushing_the_cache_answers_with_what_rank_0_forgot(front: Front) -> None:
    asking = [asyncio.create_task(front.client.post("/flush_cache")) for _ in range(2)]
    await front.engine.expect(Flush, 2)
    front.engine.say(Flushed(48))
    front.engine.say(Flushed(0))
    assert [(await one).json()["flushed_tokens"] for one in asking] == [48, 0]


async def test_flushing_ends_when_rank_0_vanishes(front: Front) -> None:
    asking = asyncio.create_task(front.client.post("/flush_cache"))
    await front.engine.expect(Flush)
    await front.engine.hang_up()
    answer = await asking
    assert (answer.status_code, "log of rank 0" in answer.text) == (503, True)
    assert (await front.client.post("/flush_cache")).status_code == 503


async def test_experts_that_are_split_over_all_ranks_are_not_rebalanced(front: Front) -> None:
    answer = await front.client.post("/eplb/rebalance")
    assert (answer.status_code, "ep-size" in answer.text) == (400, True)
