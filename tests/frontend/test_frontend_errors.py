"""What clients do wrong, and what goes wrong around them."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncIterator
from typing import Any

import httpx
import msgspec
import pytest

from panel.server.messages import Generate, Step, Stopped, Tokens
from panel.server.phases import Phase
from tests.frontend.front_under_test import Front
from tests.frontend.scripted_engine import STARTED, reply, until

CHAT = {"messages": [{"role": "user", "content": "Hi"}]}


def error_of(answer: httpx.Response, status: int) -> dict[str, Any]:
    assert answer.status_code == status, answer.text
    error: dict[str, Any] = answer.json()["error"]
    assert set(error) == {"message", "type", "param", "code"}
    assert error["type"] == ("server_error" if status >= 500 else "invalid_request_error")
    return error


@pytest.mark.parametrize(
    ("fields", "param"),
    [
        ({"temperature": "hot"}, "temperature"),
        ({"temperature": -1}, "temperature"),
        ({"top_p": 0}, "top_p"),
        ({"top_k": -2}, "top_k"),
        ({"min_p": 1.5}, "min_p"),
        ({"n": 0}, "n"),
        ({"max_tokens": 0}, "max_tokens"),
        ({"seed": 1.5}, "seed"),
        ({"stop": ["x"] * 9}, "stop"),
        ({"stop": ""}, "stop"),
        ({"stop": [1]}, "stop[0]"),
        ({"presence_penalty": 3}, "presence_penalty"),
        ({"repetition_penalty": 0}, "repetition_penalty"),
        ({"priority": 0.5}, "priority"),
        ({"priority": 101}, "priority"),
        ({"top_logprobs": 2}, "top_logprobs"),
        ({"logprobs": True, "top_logprobs": 21}, "top_logprobs"),
        ({"stream_options": {"include_usage": "yes"}}, "stream_options.include_usage"),
        ({"messages": []}, "messages"),
        ({"messages": [{"content": "no role"}]}, "messages[0]"),
        ({"messages": [{"role": "robot", "content": ""}]}, "messages"),
        (
            {"messages": [{"role": "user", "content": [{"type": "image_url", "image_url": {}}]}]},
            "messages[0].content[0].type",
        ),
    ],
)
async def test_bad_fields_of_chat_are_named(
    front: Front, fields: dict[str, Any], param: str
) -> None:
    answer = await front.client.post("/v1/chat/completions", json={**CHAT, **fields})
    assert error_of(answer, 400)["param"] == param
    assert front.engine.received == []


@pytest.mark.parametrize(
    ("fields", "param", "words"),
    [
        ({}, "prompt", "missing"),
        ({"prompt": []}, "prompt", "length"),
        ({"prompt": ["a", 1]}, "prompt", "mixes"),
        ({"prompt": [[1], "a"]}, "prompt", "mixes"),
        ({"prompt": [-1]}, "prompt[0]", ">= 0"),
        ({"prompt": [1, 320]}, "prompt", "320"),
        ({"prompt": "a", "logprobs": True}, "logprobs", "int"),
    ],
)
async def test_bad_fields_of_completions_are_named(
    front: Front, fields: dict[str, Any], param: str, words: str
) -> None:
    error = error_of(await front.client.post("/v1/completions", json=fields), 400)
    assert error["param"] == param
    assert words in error["message"]


async def test_null_is_the_default(front: Front) -> None:
    front.engine.answer = reply([])
    fields = ("n", "stop", "seed", "temperature", "max_tokens", "stream", "logprobs", "rid")
    answer = await front.client.post("/v1/chat/completions", json={**CHAT, **dict.fromkeys(fields)})
    assert answer.status_code == 200


async def test_text_parts_are_joined(front: Front) -> None:
    front.engine.answer = reply([])
    parts = [{"type": "text", "text": "H"}, {"type": "text", "text": "i"}]
    for content in ("Hi", parts):
        await front.client.post(
            "/v1/chat/completions", json={"messages": [{"role": "user", "content": content}]}
        )
    whole, joined = await front.engine.expect(Generate), await front.engine.expect(Generate, 2)
    assert whole.tokens == joined.tokens


async def test_a_body_that_is_no_json(front: Front) -> None:
    error = error_of(await front.client.post("/v1/completions", content=b"{"), 400)
    assert error["code"] == "invalid_json"


@pytest.mark.parametrize(("path", "status"), [("/v1/nothing", 404), ("/v1/completions", 405)])
async def test_unknown_paths_and_methods_answer_in_the_same_shape(
    front: Front, path: str, status: int
) -> None:
    error_of(await front.client.get(path), status)


async def test_another_model_is_refused_with_the_name_of_ours(front: Front) -> None:
    answer = await front.client.post("/v1/completions", json={"prompt": "a", "model": "other"})
    error = error_of(answer, 404)
    assert error["code"] == "model_not_found"
    assert "'tiny'" in error["message"]


async def test_a_long_prompt_is_refused_with_both_numbers(front: Front) -> None:
    answer = await front.client.post("/v1/completions", json={"prompt": [7] * 64})
    error = error_of(answer, 400)
    assert error["code"] == "context_length_exceeded"
    assert "the prompt has 64 tokens" in error["message"]
    assert "context of 64 tokens" in error["message"]


async def test_a_long_answer_is_refused_with_all_numbers(front: Front) -> None:
    fields = {"prompt": [7] * 60, "max_tokens": 5}
    error = error_of(await front.client.post("/v1/completions", json=fields), 400)
    assert error["param"] == "max_tokens"
    assert all(number in error["message"] for number in ("60", "5", "64"))
    front.engine.answer = reply([])
    fields["max_tokens"] = 4
    assert (await front.client.post("/v1/completions", json=fields)).status_code == 200


async def test_a_small_cache_bounds_the_prompt_too(starting: Front) -> None:
    starting.engine.say(msgspec.structs.replace(STARTED, max_total_tokens=32))
    await until(lambda: starting.link.started is not None)
    answer = await starting.client.post("/v1/completions", json={"prompt": [7] * 32})
    assert "context of 32 tokens" in error_of(answer, 400)["message"]


async def test_a_rid_that_runs_is_refused(front: Front) -> None:
    fields = {"prompt": "a", "rid": "mine"}
    running = asyncio.create_task(front.client.post("/v1/completions", json=fields))
    request = await front.engine.expect(Generate)
    answer = await front.client.post("/v1/completions", json={**fields, "stream": True})
    assert error_of(answer, 400)["param"] == "rid"
    front.engine.say(Step([Tokens(request.rid, [], finish="stop")]))
    assert (await running).status_code == 200


@pytest.mark.parametrize("streamed", [False, True])
async def test_an_error_of_the_engine_reaches_the_client(front: Front, streamed: bool) -> None:
    front.engine.answer = lambda request: [
        Tokens(request.rid, [], finish="error", error="logits are not finite")
    ]
    answer = await front.client.post("/v1/completions", json={"prompt": "a", "stream": streamed})
    assert "logits are not finite" in error_of(answer, 500)["message"]


@pytest.mark.parametrize("streamed", [False, True])
async def test_requests_end_when_rank_0_vanishes(front: Front, streamed: bool) -> None:
    answering = asyncio.create_task(
        front.client.post("/v1/completions", json={"prompt": "a", "stream": streamed})
    )
    await front.engine.expect(Generate)
    await front.engine.hang_up()
    assert "look in the log of rank 0" in error_of(await answering, 503)["message"]
    answer = await front.client.get("/health")
    assert (answer.status_code, "rank 0" in answer.text) == (503, True)
    answer = await front.client.post("/v1/completions", json={"prompt": "a"})
    assert "rank 0 is gone" in error_of(answer, 503)["message"]


async def test_the_last_words_of_rank_0_reach_the_client(front: Front) -> None:
    answering = asyncio.create_task(front.client.post("/v1/completions", json={"prompt": "a"}))
    await front.engine.expect(Generate)
    front.engine.say(Stopped("rank 3 (pid 7) is gone at step 5"))
    await front.engine.hang_up()
    assert "rank 3 (pid 7) is gone" in error_of(await answering, 503)["message"]
    assert "rank 3 (pid 7) is gone" in (await front.client.get("/health")).text


async def test_a_bug_is_answered_in_the_same_shape(
    front: Front, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(*_: object) -> None:
        raise RuntimeError("a bug")

    monkeypatch.setattr("panel.server.frontend.api.chat_job", fail)
    error = error_of(await front.client.post("/v1/chat/completions", json=CHAT), 500)
    assert "RuntimeError" in error["message"]
    assert "a bug" not in error["message"]


async def test_before_the_start_requests_hear_the_phases(starting: Front) -> None:
    starting.heartbeats.beat(1, Phase.WEIGHTS, step=0)
    answer = await starting.client.post("/v1/completions", json={"prompt": "a"})
    error = error_of(answer, 503)
    assert "not started: rank 0; weights: rank 1" in error["message"]
    assert answer.headers["retry-after"] == "1"


async def test_while_draining_requests_are_refused(front: Front) -> None:
    front.link.drain(60)
    answer = await front.client.post("/v1/completions", json={"prompt": "a"})
    assert "shutting down" in error_of(answer, 503)["message"]


class TestLimits:
    @pytest.fixture
    def flags(self) -> dict[str, str]:
        return {
            "max-running-requests": "1",
            "max-queued-requests": "2",
            "max-body-bytes": "1024",
        }

    async def test_more_sequences_than_may_wait_are_refused(self, front: Front) -> None:
        fields = {"prompt": "a", "n": 2}
        running = asyncio.create_task(front.client.post("/v1/completions", json=fields))
        first = await front.engine.expect(Generate)
        second = await front.engine.expect(Generate, 2)
        answer = await front.client.post("/v1/completions", json=fields)
        error = error_of(answer, 503)
        assert error["code"] == "queue_full"
        assert "2 sequences run or wait, and 3 may" in error["message"]
        assert answer.headers["retry-after"] == "1"
        front.engine.say(Step([Tokens(first.rid, [], finish="stop")]))
        await until(lambda: front.link.open == 1)
        admitted = asyncio.create_task(front.client.post("/v1/completions", json=fields))
        third = await front.engine.expect(Generate, 3)
        fourth = await front.engine.expect(Generate, 4)
        ends = [Tokens(one.rid, [], finish="stop") for one in (second, third, fourth)]
        front.engine.say(Step(ends))
        assert {(await one).status_code for one in (running, admitted)} == {200}

    async def test_what_could_never_wait_is_the_clients_error(self, front: Front) -> None:
        answer = await front.client.post("/v1/completions", json={"prompt": "a", "n": 4})
        assert error_of(answer, 400)["param"] == "n"

    @pytest.mark.parametrize("path", ["/v1/completions", "/v1/chat/completions", "/abort_request"])
    async def test_a_large_body_is_refused_however_it_comes(self, front: Front, path: str) -> None:
        async def pieces() -> AsyncIterator[bytes]:
            for _ in range(40):
                yield b" " * 1000

        for body in (b" " * 1025, pieces()):
            error = error_of(await front.client.post(path, content=body), 413)
            assert error["code"] == "body_too_large"
            assert "1024 bytes" in error["message"]
        answer = await front.client.post(path, content=b" " * 1024)
        assert error_of(answer, 400)["code"] == "invalid_json"


async def test_a_text_that_no_context_can_hold_is_not_even_encoded(front: Front) -> None:
    words = "the quick brown fox " * 1000
    for path, body in (
        ("/v1/completions", {"prompt": ["a", words]}),
        ("/v1/chat/completions", {"messages": [{"role": "user", "content": words}]}),
    ):
        error = error_of(await front.client.post(path, json=body), 400)
        assert error["code"] == "context_length_exceeded"
        assert "characters" in error["message"]


class TestApiKey:
    @pytest.fixture
    def flags(self) -> dict[str, str]:
        return {"api-key": "s3cret-key", "log-level": "debug"}

    async def test_only_the_key_opens_the_api(
        self, front: Front, caplog: pytest.LogCaptureFixture
    ) -> None:
        caplog.set_level(logging.DEBUG)
        for headers in ({}, {"Authorization": "Bearer wrong"}, {"Authorization": "s3cret-key"}):
            for path in ("/v1/completions", "/v1/nothing", "/abort_request", "/flush_cache"):
                answer = await front.client.post(path, json={}, headers=headers)
                assert error_of(answer, 401)["code"] == "invalid_api_key"
        headers = {"Authorization": "Bearer s3cret-key"}
        assert (await front.client.get("/v1/models", headers=headers)).status_code == 200
        assert "s3cret-key" not in caplog.text

    async def test_probes_need_no_key_and_do_not_show_it(self, front: Front) -> None:
        for path in ("/health", "/ready", "/metrics", "/server_info"):
            answer = await front.client.get(path)
            assert answer.status_code == 200
            assert "s3cret-key" not in answer.text


async def test_the_access_log_has_one_line_a_request(
    front: Front, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.DEBUG, "panel.server.frontend.access")
    await front.client.get("/v1/models")
    await front.client.get("/health")
    await front.client.get("/v1/%0Afake")
    levels = [record.levelname for record in caplog.records]
    assert levels == ["INFO", "DEBUG", "INFO"]
    assert "GET /v1/models 200 in " in caplog.messages[0]
    assert "GET /v1/\\nfake 404" in caplog.messages[2]
