"""The wire format of both APIs, whole and streamed."""

from __future__ import annotations

import asyncio
import itertools
import json
from collections.abc import Callable
from typing import Any

import pytest

from panel.server.frontend.text import Text
from panel.server.messages import Abort, Generate, Step, Tokens
from tests.frontend.front_under_test import Front
from tests.frontend.scripted_engine import reply, until

TokensOf = Callable[[str], list[int]]
CHAT = {"messages": [{"role": "user", "content": "Hi"}]}


def events(body: str) -> list[dict[str, Any]]:
    """The events of a stream, which must end as OpenAI's do."""
    blocks = body.split("\n\n")
    assert blocks[-2:] == ["data: [DONE]", ""]
    assert all(block.startswith("data: ") for block in blocks[:-1])
    return [json.loads(block.removeprefix("data: ")) for block in blocks[:-2]]


async def post(front: Front, path: str, **body: object) -> dict[str, Any]:
    answer = await front.client.post(path, json=body)
    assert answer.status_code == 200, answer.text
    result: dict[str, Any] = answer.json()
    return result


async def stream(front: Front, path: str, **body: object) -> list[dict[str, Any]]:
    answer = await front.client.post(path, json={**body, "stream": True})
    assert answer.status_code == 200, answer.text
    assert answer.headers["content-type"].startswith("text/event-stream")
    return events(answer.text)


async def test_chat(front: Front, text: Text, tokens_of: TokensOf) -> None:
    front.engine.answer = reply(tokens_of("the fox"))
    body = await post(front, "/v1/chat/completions", **CHAT, model="tiny", user="x", unknown=1)
    request = await front.engine.expect(Generate)
    prompt = text.encode_chat(CHAT["messages"], add_generation_prompt=True, extra={})
    assert request.tokens == prompt
    assert request.max_new_tokens == 64 - len(prompt)
    assert request.stop_tokens == [1, 4]
    assert body["object"] == "chat.completion"
    assert body["id"].startswith("chatcmpl-")
    assert body["model"] == "tiny"
    assert body["choices"] == [
        {
            "index": 0,
            "message": {"role": "assistant", "content": "the fox"},
            "logprobs": None,
            "finish_reason": "stop",
        }
    ]
    assert body["usage"] == {
        "prompt_tokens": len(prompt),
        "completion_tokens": len(tokens_of("the fox")),
        "total_tokens": len(prompt) + len(tokens_of("the fox")),
        "prompt_tokens_details": {"cached_tokens": 0},
    }


async def test_chat_stream(front: Front, tokens_of: TokensOf) -> None:
    front.engine.answer = reply(tokens_of("the 🦊 ran"), finish="length")
    chunks = await stream(
        front, "/v1/chat/completions", **CHAT, stream_options={"include_usage": True}
    )
    assert {chunk["object"] for chunk in chunks} == {"chat.completion.chunk"}
    assert len({chunk["id"] for chunk in chunks}) == 1
    *pieces, last = chunks
    assert pieces[0]["choices"][0]["delta"] == {"role": "assistant", "content": ""}
    assert "".join(piece["choices"][0]["delta"]["content"] for piece in pieces) == "the 🦊 ran"
    assert [piece["choices"][0]["finish_reason"] for piece in pieces][-1] == "length"
    assert all(piece["usage"] is None for piece in pieces)
    assert last["choices"] == []
    assert last["usage"]["completion_tokens"] == len(tokens_of("the 🦊 ran"))


async def test_a_stream_without_usage_does_not_mention_it(
    front: Front, tokens_of: TokensOf
) -> None:
    front.engine.answer = reply(tokens_of("fox"))
    for path, body in (("/v1/chat/completions", CHAT), ("/v1/completions", {"prompt": "a"})):
        chunks = await stream(front, path, **body)
        assert all("usage" not in chunk and chunk["choices"] for chunk in chunks)


async def test_sampling_fields_reach_rank_0(front: Front) -> None:
    front.engine.answer = reply([])
    fields = {
        "temperature": 0,
        "top_p": 0.5,
        "top_k": -1,
        "min_p": 0.1,
        "frequency_penalty": 0.5,
        "presence_penalty": -0.5,
        "repetition_penalty": 1.5,
        "priority": -3,
    }
    own = {"seed": 7, "max_completion_tokens": 5, "ignore_eos": True, "stop_token_ids": [9], "n": 2}
    await post(front, "/v1/chat/completions", **CHAT, **fields, **own)
    await front.engine.expect(Generate, 2)
    first, second = front.engine.received
    assert isinstance(first, Generate)
    assert isinstance(second, Generate)
    assert (first.temperature, first.top_p, first.top_k, first.min_p) == (0.0, 0.5, 0, 0.1)
    assert (first.frequency_penalty, first.presence_penalty) == (0.5, -0.5)
    assert (first.repetition_penalty, first.priority) == (1.5, -3)
    assert (first.max_new_tokens, first.stop_tokens, first.logprobs) == (5, [9], None)
    assert (first.seed, second.seed) == (7, 8)
    assert first.rid != second.rid


async def test_completion_of_every_form_of_prompt(
    front: Front, text: Text, tokens_of: TokensOf
) -> None:
    front.engine.answer = reply(tokens_of("fox"))
    one, two = text.encode("a"), text.encode("the")
    for prompt, expected in (
        ("a", [one]),
        (["a", "the"], [one, two]),
        (one, [one]),
        ([one, two], [one, two]),
        ("", [[0]]),
    ):
        front.engine.received.clear()
        body = await post(front, "/v1/completions", prompt=prompt)
        await front.engine.expect(Generate, len(expected))
        requests = [item for item in front.engine.received if isinstance(item, Generate)]
        assert [request.tokens for request in requests] == expected
        assert {request.max_new_tokens for request in requests} == {16}
        assert body["object"] == "text_completion"
        assert [choice["index"] for choice in body["choices"]] == list(range(len(expected)))
        assert {choice["text"] for choice in body["choices"]} == {"fox"}
        assert body["usage"]["prompt_tokens"] == sum(map(len, expected))


async def test_echo_repeats_each_prompt(front: Front, tokens_of: TokensOf) -> None:
    front.engine.answer = reply(tokens_of(" fox"))
    fields: dict[str, Any] = {"prompt": ["the", "a"], "echo": True, "n": 2}
    body = await post(front, "/v1/completions", **fields)
    expected = ["the fox", "the fox", "a fox", "a fox"]
    assert [choice["text"] for choice in body["choices"]] == expected
    texts = [""] * 4
    for chunk in await stream(front, "/v1/completions", **fields):
        texts[chunk["choices"][0]["index"]] += chunk["choices"][0]["text"]
    assert texts == expected


@pytest.mark.parametrize("prompt", ["the quick brown fox", ""])
async def test_echo_with_logprobs_begins_with_the_prompts_tokens(
    front: Front, text: Text, tokens_of: TokensOf, prompt: str
) -> None:
    front.engine.answer = reply(tokens_of(" fox"))
    given = [0, *tokens_of(prompt)]  # The tokenizer begins with a token that has no text.
    fields: dict[str, Any] = {"prompt": prompt, "echo": True, "logprobs": 1, "stop": ["qui"]}
    body = await post(front, "/v1/completions", **fields)
    (choice,) = body["choices"]
    assert choice["text"] == prompt + " fox"
    names = [text.token_text(token) for token in given + tokens_of(" fox")]
    logprobs = choice["logprobs"]
    assert logprobs["tokens"] == names
    scores = [-float(token) for token in given[1:] + tokens_of(" fox")]
    assert logprobs["token_logprobs"] == [None, *scores]
    assert logprobs["top_logprobs"][0] is None
    assert all(len(top) == 2 for top in logprobs["top_logprobs"][1:])
    offsets = logprobs["text_offset"]
    assert offsets[:2] == [0, 0]
    for name, offset in zip(names[1:], offsets[1:], strict=True):
        assert choice["text"][offset:].startswith(name)
    chunks = [chunk["choices"][0] for chunk in await stream(front, "/v1/completions", **fields)]
    assert "".join(chunk["text"] for chunk in chunks) == choice["text"]
    assert chunks[0]["text"].startswith(prompt)
    parts = [chunk["logprobs"] for chunk in chunks]
    assert {key: [x for part in parts for x in part[key]] for key in logprobs} == logprobs


async def test_logprobs_of_chat(front: Front, text: Text, tokens_of: TokensOf) -> None:
    tokens = tokens_of("the é")
    front.engine.answer = reply(tokens)
    body = await post(
        front, "/v1/chat/completions", **CHAT, logprobs=True, top_logprobs=1, stop=["zzz"]
    )
    content = body["choices"][0]["logprobs"]["content"]
    assert [entry["logprob"] for entry in content] == [-float(token) for token in tokens]
    assert b"".join(bytes(entry["bytes"]) for entry in content).decode() == "the é"
    rival = content[0]["top_logprobs"][0]
    assert rival["token"] == text.token_text(tokens[0] + 1)
    assert rival["logprob"] == -tokens[0] - 1.0


async def test_logprobs_of_completions(front: Front, text: Text, tokens_of: TokensOf) -> None:
    tokens = tokens_of("the fox")
    front.engine.answer = reply(tokens)
    body = await post(front, "/v1/completions", prompt="a", logprobs=1)
    names = [text.token_text(token) for token in tokens]
    logprobs = body["choices"][0]["logprobs"]
    assert logprobs["tokens"] == names
    assert logprobs["token_logprobs"] == [-float(token) for token in tokens]
    assert logprobs["text_offset"] == [len("".join(names[:place])) for place in range(len(names))]
    assert logprobs["top_logprobs"][0] == {
        names[0]: -float(tokens[0]),
        text.token_text(tokens[0] + 1): -tokens[0] - 1.0,
    }
    chunks = await stream(front, "/v1/completions", prompt="a", logprobs=1)
    offsets = [chunk["choices"][0]["logprobs"]["text_offset"] for chunk in chunks]
    assert list(itertools.chain(*offsets)) == logprobs["text_offset"]


async def test_a_stop_string_ends_the_sequence_at_rank_0(front: Front, tokens_of: TokensOf) -> None:
    answering = asyncio.create_task(
        stream(front, "/v1/completions", prompt="a", stop="XY", max_tokens=40)
    )
    request = await front.engine.expect(Generate)
    front.engine.say(Step([Tokens(request.rid, tokens_of("the foX"))]))
    front.engine.say(Step([Tokens(request.rid, tokens_of("Y and"))]))
    assert (await front.engine.expect(Abort)).rid == request.rid
    chunks = await answering
    assert "".join(chunk["choices"][0]["text"] for chunk in chunks) == "the fo"
    assert chunks[-1]["choices"][0]["finish_reason"] == "stop"


async def test_one_choice_may_end_before_the_other(front: Front, tokens_of: TokensOf) -> None:
    answering = asyncio.create_task(post(front, "/v1/completions", prompt="a", n=2, stop="."))
    first = await front.engine.expect(Generate)
    second = await front.engine.expect(Generate, 2)
    front.engine.say(Step([Tokens(rid, tokens_of("one")) for rid in (first.rid, second.rid)]))
    front.engine.say(Step([Tokens(first.rid, tokens_of(".")), Tokens(second.rid, [])]))
    assert (await front.engine.expect(Abort)).rid == first.rid
    front.engine.say(Step([Tokens(second.rid, tokens_of(" two"), finish="length")]))
    choices = (await answering)["choices"]
    assert [choice["text"] for choice in choices] == ["one", "one two"]
    assert [choice["finish_reason"] for choice in choices] == ["stop", "length"]


async def test_cached_tokens_count_once_a_prompt(front: Front) -> None:
    front.engine.answer = lambda request: [
        Tokens(request.rid, [7], finish="length", cached_tokens=3)
    ]
    body = await post(front, "/v1/completions", prompt=["a", "a"], n=2)
    assert body["usage"]["prompt_tokens_details"] == {"cached_tokens": 6}
    assert body["usage"]["completion_tokens"] == 4


async def test_models(front: Front) -> None:
    body = (await front.client.get("/v1/models")).json()
    assert body["object"] == "list"
    assert [(model["id"], model["object"]) for model in body["data"]] == [("tiny", "model")]
    assert body["data"][0]["max_model_len"] == 64


async def test_a_client_aborts_by_its_own_name(front: Front) -> None:
    answering = asyncio.create_task(post(front, "/v1/completions", prompt="a", rid="mine"))
    request = await front.engine.expect(Generate)
    answer = await front.client.post("/abort_request", json={"rid": "mine"})
    assert answer.json() == {"aborted": 1}
    assert (await front.engine.expect(Abort)).rid == request.rid
    body = await answering
    assert body["id"] == "mine"
    assert body["choices"][0]["finish_reason"] == "abort"
    await until(lambda: front.link.running == 0)


async def test_abort_all(front: Front) -> None:
    answering = [
        asyncio.create_task(post(front, "/v1/completions", prompt="a", n=2)) for _ in range(2)
    ]
    await front.engine.expect(Generate, 4)
    answer = await front.client.post("/abort_request", json={"abort_all": True})
    assert answer.json() == {"aborted": 2}
    for body in await asyncio.gather(*answering):
        assert {choice["finish_reason"] for choice in body["choices"]} == {"abort"}
    await front.engine.expect(Abort, 4)
