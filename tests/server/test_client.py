"""The official `openai` client against a live engine of eight ranks."""

from __future__ import annotations

import math
from collections.abc import Iterator

import openai
import pytest

from tests.server.live import Live, live_engine

MODEL = "moe-tiny"
TURN = [{"role": "user", "content": "Hello"}]


@pytest.fixture(scope="module")
def live(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Live]:
    with live_engine(tmp_path_factory.mktemp("live"), "--max-queued-requests=20") as live:
        yield live
        assert live.stop() == 0
        log = live.log.read_text()
        assert "every page is accounted for" in log
        assert "ERROR" not in log


@pytest.fixture(scope="module")
def client(live: Live) -> Iterator[openai.OpenAI]:
    with openai.OpenAI(base_url=f"{live.url}/v1", api_key="none", max_retries=0) as client:
        yield client


def test_models(client: openai.OpenAI) -> None:
    assert [model.id for model in client.models.list()] == [MODEL]


def test_chat_whole_and_streamed_are_the_same_text(client: openai.OpenAI) -> None:
    fields = {"model": MODEL, "messages": TURN, "max_tokens": 12, "temperature": 0}
    whole = client.chat.completions.create(**fields)
    assert whole.choices[0].message.role == "assistant"
    assert whole.usage is not None
    assert whole.usage.total_tokens == whole.usage.prompt_tokens + whole.usage.completion_tokens
    stream = client.chat.completions.create(
        **fields, stream=True, stream_options={"include_usage": True}
    )
    chunks = list(stream)
    assert chunks[-1].choices == []
    assert chunks[-1].usage is not None
    assert chunks[-1].usage.completion_tokens == whole.usage.completion_tokens
    text = "".join(chunk.choices[0].delta.content or "" for chunk in chunks[:-1])
    assert text == whole.choices[0].message.content
    assert chunks[-2].choices[0].finish_reason == whole.choices[0].finish_reason


def test_a_prompt_that_was_there_before_costs_less(client: openai.OpenAI) -> None:
    prompt = "The river ran north past the mill, and nobody in the town could say why. " * 6
    fields = {"model": MODEL, "prompt": prompt, "max_tokens": 8, "temperature": 0}
    first, again = (client.completions.create(**fields) for _ in range(2))
    assert first.choices[0].text == again.choices[0].text
    assert again.usage is not None
    assert again.usage.prompt_tokens_details is not None
    cached = again.usage.prompt_tokens_details.cached_tokens or 0
    assert again.usage.prompt_tokens - 16 <= cached < again.usage.prompt_tokens


def test_a_seed_gives_the_same_text_and_choices_of_their_own(client: openai.OpenAI) -> None:
    fields = {"model": MODEL, "prompt": "Once", "max_tokens": 12, "n": 3, "seed": 5}
    first, again = (client.completions.create(**fields) for _ in range(2))
    texts = [choice.text for choice in first.choices]
    assert [choice.text for choice in again.choices] == texts
    assert len(set(texts)) > 1
    assert [choice.index for choice in first.choices] == [0, 1, 2]


def test_logprobs_of_chat(client: openai.OpenAI) -> None:
    answer = client.chat.completions.create(
        model=MODEL, messages=TURN, max_tokens=6, temperature=0, logprobs=True, top_logprobs=4
    )
    assert answer.choices[0].logprobs is not None
    content = answer.choices[0].logprobs.content or []
    assert answer.usage is not None
    assert 0 < len(content) <= answer.usage.completion_tokens
    for entry in content:
        assert len(entry.top_logprobs) == 4
        assert entry.logprob == entry.top_logprobs[0].logprob
        assert sum(math.exp(rival.logprob) for rival in entry.top_logprobs) <= 1 + 1e-6


def test_stops_limits_and_token_prompts(client: openai.OpenAI) -> None:
    fields = {"model": MODEL, "max_tokens": 24, "temperature": 0, "prompt": [0, 70, 90, 110]}
    whole = client.completions.create(**fields, extra_body={"ignore_eos": True})
    assert whole.choices[0].finish_reason == "length"
    text = whole.choices[0].text
    stop = text[len(text) // 2 : len(text) // 2 + 3]
    cut = client.completions.create(**fields, stop=stop, extra_body={"ignore_eos": True})
    assert cut.choices[0].finish_reason == "stop"
    assert cut.choices[0].text == text[: text.index(stop)]
    echo = client.completions.create(**(fields | {"prompt": "The river", "echo": True}))
    assert echo.choices[0].text.startswith("The river")


def test_echo_with_logprobs_scores_the_prompt(client: openai.OpenAI) -> None:
    fields = {"model": MODEL, "prompt": "The river ran north past", "temperature": 0, "logprobs": 2}
    whole = client.completions.create(**fields, max_tokens=3, echo=True)
    plain = client.completions.create(**fields, max_tokens=3)
    assert whole.choices[0].text == fields["prompt"] + plain.choices[0].text
    logprobs, answer = whole.choices[0].logprobs, plain.choices[0].logprobs
    assert logprobs is not None
    assert answer is not None
    assert whole.usage is not None
    assert len(logprobs.tokens) == whole.usage.total_tokens
    assert logprobs.token_logprobs[0] is None
    assert logprobs.token_logprobs[-3:] == pytest.approx(answer.token_logprobs, abs=1e-4)
    assert all(value <= 0 for value in logprobs.token_logprobs[1:])
    assert "".join(logprobs.tokens).endswith(whole.choices[0].text)
    # What the model would have said after the prompt's beginning is what it finds most probable.
    begin = logprobs.tokens[:4]
    text = "".join(begin).removeprefix(logprobs.tokens[0] if logprobs.text_offset[1] == 0 else "")
    best = max(logprobs.top_logprobs[4].items(), key=lambda pair: pair[1])[0]
    says = client.completions.create(**(fields | {"prompt": text}), max_tokens=1)
    assert says.choices[0].logprobs is not None
    assert says.choices[0].logprobs.tokens == [best]


def test_repetition_penalty_changes_a_text_that_repeats(client: openai.OpenAI) -> None:
    fields = {"model": MODEL, "prompt": "go " * 30, "max_tokens": 16, "temperature": 0}
    plain = client.completions.create(**fields).choices[0].text
    fields["extra_body"] = {"repetition_penalty": 2.0, "priority": 3}
    assert client.completions.create(**fields).choices[0].text != plain


def test_errors_arrive_as_the_exceptions_of_the_client(client: openai.OpenAI) -> None:
    with pytest.raises(openai.NotFoundError, match="is not served here"):
        client.completions.create(model="gpt-5", prompt="a")
    with pytest.raises(openai.BadRequestError) as caught:
        client.completions.create(model=MODEL, prompt=[5] * 3000)
    assert caught.value.code == "context_length_exceeded"
    with pytest.raises(openai.BadRequestError) as caught:
        client.chat.completions.create(model=MODEL, messages=TURN, temperature=-1)
    assert caught.value.param == "temperature"
    with pytest.raises(openai.BadRequestError, match="may run and wait together"):
        client.completions.create(model=MODEL, prompt="a", n=100)


def test_leaving_a_stream_frees_its_sequence(client: openai.OpenAI, live: Live) -> None:
    with client.completions.create(
        model=MODEL, prompt="a", max_tokens=1500, stream=True, extra_body={"ignore_eos": True}
    ) as stream:
        assert next(iter(stream)).choices[0].text
    live.settle()


def test_the_cache_is_flushed_on_demand(client: openai.OpenAI, live: Live) -> None:
    client.completions.create(model=MODEL, prompt=[7] * 40, max_tokens=1)
    cached = live.settle()["kv_cached"]
    assert cached >= 32
    assert live.post("/flush_cache", b"") == (200, {"flushed_tokens": cached})
    assert live.post("/flush_cache", b"") == (200, {"flushed_tokens": 0})


def test_metrics_have_seen_it_all(live: Live) -> None:
    live.complete()
    live.settle()
    values = live.samples()
    for name in ("time_to_first_token", "inter_token_latency", "e2e_request_latency"):
        assert values[f"moepanel_{name}_seconds_count"] > 0
    ends = {name: value for name, value in values.items() if "requests_total/" in name}
    served = sum(ends.values()) - ends.get("moepanel_requests_total/abort", 0)
    assert values["moepanel_request_queue_time_seconds_count"] >= served > 0
    assert 0 < values["moepanel_prefix_cache_hit_rate"] < 1
    by_bucket = [v for n, v in values.items() if n.startswith("moepanel_decode_steps_total/")]
    assert sum(by_bucket) + values["moepanel_prefill_steps_total"] == values["moepanel_steps_total"]
